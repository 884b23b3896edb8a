// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/groupcommit"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// Store reads and writes network objects. It is the store of an allocator.Allocator: see
// there for what its methods promise.
type Store interface {
	// Get reads the object with quorum.
	Get(ctx context.Context, ref network.Ref) (*status.Object, error)
	// Update writes IPAM, Allocated and Capacity, with the object's ResourceVersion.
	Update(ctx context.Context, obj *status.Object) (*status.Object, error)
	// Protect takes the finalizer danm.io/in-use off.
	Protect(ctx context.Context, obj *status.Object, on bool) (*status.Object, error)
	// Endpoints lists the DanmEps that name the network, consistently.
	Endpoints(ctx context.Context, ref network.Ref) ([]status.Endpoint, error)
}

// Config is what a Collector needs to know; the zero value will do.
type Config struct {
	// Reserved returns the addresses that are never handed out besides gateways, as the
	// nodes count them; nil means none.
	Reserved func(*network.Network) []netip.Addr
	// Timeout bounds one request to the store; 10 s when zero.
	Timeout time.Duration
	// Report gets what was found damaged and has been repaired; nil drops it.
	Report func(error)
}

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Reserved == nil {
		c.Reserved = func(*network.Network) []netip.Addr { return nil }
	}
	if c.Report == nil {
		c.Report = func(error) {}
	}
	return c
}

// The bound of the random wait after a conflict: it starts at minBackoff or more, and doubles
// up to maxBackoff.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// Collector collects the garbage of a cluster's networks. It has no entry of its own and
// claims nothing. Any number of them may work, beside the nodes.
type Collector struct {
	store Store
	cfg   Config
	retry groupcommit.Policy
	// versions are the newest that were seen: a write on an older object would hide
	// from the nodes that it is older.
	versions status.Versions
	// recoveries counts the recoveries that nodes begin.
	recoveries recoveryLimiter
}

// NewCollector returns a Collector.
func NewCollector(store Store, cfg Config) *Collector {
	cfg = cfg.withDefaults()
	return &Collector{store: store, cfg: cfg, retry: groupcommit.Policy{MinBackoff: minBackoff, MaxBackoff: maxBackoff}}
}

// ObserveVersion records that the metadata of a network is at that version, by a watch.
func (c *Collector) ObserveVersion(key network.Key, resourceVersion string) {
	c.versions.ObserveWatch(key, resourceVersion)
}

// NetworkDeleted records that a network is gone, by a watch.
func (c *Collector) NetworkDeleted(key network.Key) {
	c.versions.Forget(key)
	c.recoveries.forget(key)
}

// FreeGoneNodes removes the entries of nodes that are gone from a network, each if it has
// that Node UID, and frees what they alone covered. A node is gone only when its machine is
// off: its Pods' addresses are covered by their DanmEps as long as those exist, and no longer.
func (c *Collector) FreeGoneNodes(ctx context.Context, key network.Key, gone map[string]string) (freed int64, err error) {
	err = c.change(ctx, "evict nodes from", key, func(d *draft) error {
		for node, uid := range gone {
			if h, ok := d.Next.IPAM.Held[node]; ok && h.UID == uid {
				d.RemoveEntry(node)
			}
		}
		err := d.FreeUncovered(noUse)
		freed = d.Freed
		return err
	})
	return freed, err
}

// noUse is what the controller knows of addresses in use beside entries and DanmEps: nothing.
func noUse(netip.Addr) bool { return false }

// RemoveFinalizer takes the finalizer danm.io/in-use off a network in deletion that is not
// in use any more, and reports whether it is off. It reads the network, then lists the
// DanmEps, then writes with the resourceVersion of that read: a node that begins to use the
// network has an entry in its status first, and so changes it. The error is
// status.ErrConflict when the network was changed.
func (c *Collector) RemoveFinalizer(ctx context.Context, key network.Key) (done bool, err error) {
	newest := c.versions.Newest(key)
	obj, err := ask(ctx, c.cfg.Timeout, func(ctx context.Context) (*status.Object, error) { return c.store.Get(ctx, key.Ref) })
	switch {
	case errors.Is(err, status.ErrNotFound), err == nil && obj.UID != key.UID:
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read network %v: %w", key.Ref, err)
	case status.IsOlder(obj.ResourceVersion, newest): // what used it since may be lost: it recovers first
		return false, c.change(ctx, "end deletion of", key, func(*draft) error { return nil })
	case !obj.Deleting || obj.InUse():
		return false, nil
	case !obj.Protected:
		return true, nil
	}
	endpoints, err := ask(ctx, c.cfg.Timeout, func(ctx context.Context) ([]status.Endpoint, error) { return c.store.Endpoints(ctx, key.Ref) })
	if err != nil {
		return false, fmt.Errorf("list DanmEps of %v: %w", key.Ref, err)
	}
	if slices.ContainsFunc(endpoints, func(e status.Endpoint) bool { return e.Of(key.UID) }) {
		return false, nil
	}
	_, err = ask(ctx, c.cfg.Timeout, func(ctx context.Context) (*status.Object, error) { return c.store.Protect(ctx, obj, false) })
	if err != nil && !errors.Is(err, status.ErrNotFound) {
		return false, fmt.Errorf("take finalizer off network %v: %w", key.Ref, err)
	}
	return true, nil
}

// Recover starts a network's recovery when a node reports a rollback, or a new one when one
// reports that in the midst of it. It ends the recovery when each of the nodes has reported
// to it or is in skip, and returns the nodes that it awaits: none without a recovery. A node
// whose reports have begun too many is deferred for a while: its further reports begin none.
func (c *Collector) Recover(ctx context.Context, key network.Key, nodes, skip []string) (awaited []string, err error) {
	var began []string
	err = c.change(ctx, "recover", key, func(d *draft) error {
		awaited = nil
		if began = c.nodesThatBegin(d, key); len(began) > 0 {
			d.startRecovery()
		}
		rec := d.Next.IPAM.Recovering
		if rec == nil {
			return nil
		}
		for _, n := range nodes {
			if !slices.Contains(skip, n) && (!slices.Contains(rec.ReportedNodes, n) || d.reportsRollback(n)) {
				awaited = append(awaited, n)
			}
		}
		if len(awaited) == 0 {
			d.endRecovery()
		}
		return nil
	})
	if err == nil && len(began) > 0 {
		c.recoveries.began(key, began, time.Now())
	}
	return awaited, err
}

// nodesThatBegin returns the nodes whose reports of a rollback begin a recovery. A node is
// deferred from its last one on, so that no further report stops others even for a moment.
func (c *Collector) nodesThatBegin(d *draft, key network.Key) (began []string) {
	now := time.Now()
	deferred := map[string]metav1.MicroTime{}
	for name, until := range d.Next.IPAM.RecoveryDeferredUntil { // also by a former leader
		if until.After(now) {
			deferred[name] = until
		}
	}
	for name, h := range d.Next.IPAM.Held {
		if _, ok := deferred[name]; ok || !status.IsNode(name) || !status.Unanswered(h.Rollback, d.Next.IPAM.Recovering) {
			continue
		}
		begins, until := c.recoveries.allow(key, name, now)
		if begins {
			began = append(began, name)
		}
		if !until.IsZero() {
			deferred[name] = metav1.NewMicroTime(until.Truncate(time.Microsecond))
		}
	}
	if d.Next.IPAM.RecoveryDeferredUntil = deferred; len(deferred) == 0 {
		d.Next.IPAM.RecoveryDeferredUntil = nil
	}
	slices.Sort(began)
	return began
}

// change reads an object with quorum, then lists its DanmEps, and writes what f makes
// of it with the resourceVersion of that read; after a conflict all of it again.
func (c *Collector) change(ctx context.Context, verb string, key network.Key, f func(*draft) error) error {
	for try := 0; ; try++ {
		begin := time.Now()
		err := c.attempt(ctx, key, f)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errReadAgain):
			continue
		case !errors.Is(err, status.ErrConflict):
			return fmt.Errorf("%s network %v: %w", verb, key.Ref, err)
		}
		c.retry.BackOff(ctx, time.Since(begin), try)
		if ctx.Err() != nil {
			return fmt.Errorf("%s network %v: %w: %w", verb, key.Ref, status.ErrTryAgain, context.Cause(ctx))
		}
	}
}

func (c *Collector) attempt(ctx context.Context, key network.Key, f func(*draft) error) error {
	newest := c.versions.Newest(key)
	obj, err := ask(ctx, c.cfg.Timeout, func(ctx context.Context) (*status.Object, error) { return c.store.Get(ctx, key.Ref) })
	if err != nil {
		return err
	}
	if obj.UID != key.UID {
		return fmt.Errorf("%w: it was deleted and made again", status.ErrNotFound)
	}
	if obj.IPAM == nil {
		return nil // its first user will rebuild it
	}
	endpoints, err := ask(ctx, c.cfg.Timeout, func(ctx context.Context) ([]status.Endpoint, error) {
		return c.store.Endpoints(ctx, key.Ref)
	})
	if err != nil {
		return fmt.Errorf("list DanmEps: %w", err)
	}
	older := status.IsOlder(obj.ResourceVersion, newest)
	if older {
		f = func(d *draft) error { d.startRecovery(); return nil }
	}
	next, changed, err := c.plan(obj, endpoints, f)
	if err == nil && changed {
		obj, err = ask(ctx, c.cfg.Timeout, func(ctx context.Context) (*status.Object, error) { return c.store.Update(ctx, next) })
	}
	if err != nil {
		return err
	}
	c.versions.ObserveRecovery(key, obj.ResourceVersion, newest)
	if older {
		return fmt.Errorf("%w: it is older than it was, and recovers", status.ErrTryAgain)
	}
	return nil
}

// plan returns what f makes of an object.
func (c *Collector) plan(obj *status.Object, endpoints []status.Endpoint, f func(*draft) error) (*status.Object, bool, error) {
	d, err := newDraft(obj, endpoints, c.cfg.Reserved)
	if err == nil {
		err = f(d)
	}
	for _, w := range d.Warnings {
		c.cfg.Report(fmt.Errorf("network %v: %w", obj.Ref, w))
	}
	if err != nil {
		return nil, false, err
	}
	changed := d.Encode()
	return d.Next, changed, nil
}

// ask makes one request to the store, bounded in time.
func ask[T any](ctx context.Context, timeout time.Duration, request func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return request(ctx)
}

// draft is a change of a network's status that no node plans.
type draft struct {
	*status.Draft
	endpoints []status.Endpoint
}

func newDraft(obj *status.Object, endpoints []status.Endpoint, reserved func(*network.Network) []netip.Addr) (*draft, error) {
	var owners status.Owners
	if !obj.Delegated() {
		owners = status.OwnersOf(endpoints, obj.UID, "")
	}
	d := &draft{status.NewDraft(obj, "", &owners), endpoints}
	var nodeAddresses []netip.Addr
	if v4, v6 := obj.Subnets(); v4 != nil || v6 != nil {
		nodeAddresses = reserved(obj.Network)
	}
	return d, d.Open(nodeAddresses)
}

// startRecovery starts the recovery of an object that is older than it was. It begins
// after any other one: that is how nodes tell them apart.
func (d *draft) startRecovery() {
	now := time.Now().Truncate(time.Microsecond)
	if rec := d.Next.IPAM.Recovering; rec != nil && !now.After(rec.StartTime.Time) {
		now = rec.StartTime.Add(time.Microsecond)
	}
	d.Next.IPAM.Recovering = &v1.RecoveryStatus{StartTime: metav1.NewMicroTime(now)}
}

// reportsRollback reports whether a node still reports a rollback, and is not deferred.
func (d *draft) reportsRollback(node string) bool {
	_, deferred := d.Next.IPAM.RecoveryDeferredUntil[node]
	return d.Next.IPAM.Held[node].Rollback != nil && !deferred
}

// endRecovery ends the recovery and, with it, the reports that it did not wait for.
func (d *draft) endRecovery() {
	d.Next.IPAM.Recovering = nil
	for name, h := range d.Next.IPAM.Held {
		if d.reportsRollback(name) {
			h.Rollback = nil
			d.Next.IPAM.Held[name] = h
		}
	}
}
