// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// pod is the life of one Pod on a node, through all lives of its daemon: what
// the daemon did not finish, its next life does from the journal.
func (n *node) pod(id string) {
	r := n.add(id)
	if r == nil {
		return
	}
	n.m.sleep(50 * time.Millisecond)
	if n.m.chance(20) {
		n.discard(r)
		return
	}
	if n.m.chance(90) {
		n.publish(r)
	}
	n.m.sleep(200 * time.Millisecond)
	n.release(r)
}

// add claims as kubelet would: again and again, while the pool is full. It
// returns nil for a Pod that wants what it can never have.
func (n *node) add(id string) *record {
	v4, v6 := testbed.Dynamic(), testbed.None()
	if n.m.V6 != "" {
		v6 = testbed.Dynamic()
	}
	if n.m.chance(10) {
		v4 = testbed.Static("10.0.0.2")
	}
	for start := time.Now(); !n.lost(); {
		if time.Since(start) > 3*time.Minute {
			n.m.failf("%s was not served in 3 minutes: a pool of %s %s has %+v", id, n.m.V4, n.m.V6, n.m.store.Object(n.m.net.Ref).IPAM)
			return nil
		}
		ctx, cancel := context.WithCancel(context.Background())
		if n.m.chance(20) {
			ctx, cancel = context.WithTimeout(ctx, 30*time.Millisecond)
		}
		a := n.daemon()
		a4, a6, err := a.Claim(ctx, n.m.net, v4, v6)
		cancel()
		switch {
		case err == nil:
			if r := n.write(a, id, v4 != testbed.Dynamic(), a4, a6); r != nil {
				return r
			}
		case errors.Is(err, status.ErrTryAgain), errors.Is(err, allocator.ErrClosed),
			errors.Is(err, allocator.ErrExhausted), errors.Is(err, allocator.ErrTaken):
			n.m.sleep(100 * time.Millisecond)
		default:
			n.m.failf("claim: %v", err)
			return nil
		}
	}
	return nil
}

// write journals a claim and makes the interface, unless the daemon died.
func (n *node) write(a *allocator.Allocator, id string, static bool, addrs ...netip.Addr) *record {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.a != a || n.dead {
		return nil
	}
	n.m.mu.Lock()
	for _, x := range addrs {
		if other, taken := n.m.live[x]; taken {
			n.m.mu.Unlock()
			n.m.failf("%v is on two interfaces: of %s and of %s", x, other, id)
			n.m.mu.Lock()
		}
		if x.IsValid() {
			n.m.live[x] = id
		}
	}
	n.m.mu.Unlock()
	r := &record{id: id, a4: addrs[0], a6: addrs[1], static: static, phase: allocator.Claimed}
	n.journal[id] = r
	return r
}

// unplug removes the interface and journals that.
func (n *node) unplug(r *record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead {
		return // the fire took it
	}
	n.m.mu.Lock()
	delete(n.m.live, r.a4)
	delete(n.m.live, r.a6)
	n.m.mu.Unlock()
	r.phase = allocator.Releasing
}

// discard rolls back: the journal forgets first, so that no DEL comes for an
// address that may be somebody else's; the daemon may die in between.
func (n *node) discard(r *record) {
	n.unplug(r)
	n.mu.Lock()
	delete(n.journal, r.id)
	a := n.a
	n.mu.Unlock()
	if n.m.chance(20) {
		n.m.sleep(20 * time.Millisecond)
	}
	if a == n.daemon() {
		a.Discard(n.m.net, r.a4, r.a6)
	}
}

// publish makes the DanmEp; the journal may hear of it or not, and the
// allocator after that.
func (n *node) publish(r *record) {
	n.m.backup.RLock()
	defer n.m.backup.RUnlock()
	n.mu.Lock()
	due := r.phase == allocator.Claimed && !n.dead && n.journal[r.id] == r
	n.mu.Unlock()
	if !due {
		return
	}
	n.m.store.AddEndpoint(n.m.net.Ref, n.endpoint(r))
	n.m.sleep(10 * time.Millisecond)
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.phase != allocator.Claimed || n.dead {
		return
	}
	r.phase = allocator.Published
	if n.m.chance(95) {
		n.a.MarkPublished(network.KeyOf(n.m.net), r.id, r.a4, r.a6)
	}
}

func (n *node) endpoint(r *record) status.Endpoint {
	return status.Endpoint{Namespace: "ns", Name: r.id, NetworkUID: n.m.net.UID, Node: n.name, V4: r.a4, V6: r.a6}
}

// release is DEL: repeated from the start by whichever life has the record.
func (n *node) release(r *record) {
	n.unplug(r)
	key := network.KeyOf(n.m.net)
	for !n.lost() {
		a := n.daemon()
		err := a.ReturnToEntry(context.Background(), key, r.id, r.a4, r.a6)
		if err == nil {
			n.m.sleep(10 * time.Millisecond)
			n.unpublish(r)
			err = a.Free(context.Background(), key, r.id, r.a4, r.a6)
		}
		if err == nil && n.forget(a, r) {
			return
		}
		if err != nil && !errors.Is(err, status.ErrTryAgain) && !errors.Is(err, allocator.ErrClosed) {
			n.m.failf("release: %v", err)
			return
		}
		n.m.sleep(20 * time.Millisecond)
	}
}

// unpublish removes the DanmEp, unless the machine is gone and the controller's.
func (n *node) unpublish(r *record) {
	if !n.lost() {
		n.m.store.RemoveEndpoint("ns", r.id)
	}
}

// forget deletes the record, unless the daemon died before it could.
func (n *node) forget(a *allocator.Allocator, r *record) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.a != a || n.m.chance(20) {
		return false
	}
	delete(n.journal, r.id)
	a.Forget(network.KeyOf(n.m.net), r.id, r.a4, r.a6)
	return true
}
