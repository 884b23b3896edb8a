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

// Store reads and writes network objects. It has the methods of allocator.Store, which documents
// their guarantees.
type Store interface {
	// Get reads the object with quorum.
	Get(ctx context.Context, ref network.Ref) (*status.Object, error)
	// Update writes IPAM, with the object's ResourceVersion.
	Update(ctx context.Context, obj *status.Object) (*status.Object, error)
	// Protect adds or removes the finalizer danm.io/in-use.
	Protect(ctx context.Context, obj *status.Object, on bool) (*status.Object, error)
	// Endpoints lists the DanmEps that name the network, consistently.
	Endpoints(ctx context.Context, ref network.Ref) ([]status.Endpoint, error)
}

// Config configures a Collector. All fields are optional.
type Config struct {
	// Reserved returns the same addresses as allocator.Config.Reserved on the nodes; nil means
	// none.
	Reserved func(*network.Network) []netip.Addr
	// Timeout bounds one request to the store; 10 s when zero.
	Timeout time.Duration
	// Report gets the damage that was found and repaired; nil drops it.
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

// Collector collects the garbage of a cluster's networks. It has no entry and claims no address.
// Several collectors may run at the same time.
type Collector struct {
	store Store
	cfg   Config
	retry groupcommit.Policy
	// versions are the newest versions of the networks: a write to an object that was rolled
	// back would hide the rollback from the nodes.
	versions status.Versions
	// recoveries limits the recoveries that nodes start.
	recoveries recoveryLimiter
}

// NewCollector returns a Collector.
func NewCollector(store Store, cfg Config) *Collector {
	cfg = cfg.withDefaults()
	return &Collector{store: store, cfg: cfg, retry: groupcommit.Policy{MinBackoff: minBackoff, MaxBackoff: maxBackoff}}
}

// ObserveVersion records the resourceVersion of a watch event for a network.
func (c *Collector) ObserveVersion(key network.Key, resourceVersion string) {
	c.versions.ObserveWatch(key, resourceVersion)
}

// NetworkDeleted records a watch event for the deletion of a network.
func (c *Collector) NetworkDeleted(key network.Key) {
	c.versions.Forget(key)
	c.recoveries.forget(key)
}

// FreeGoneNodes removes the entries of deleted nodes, given as UIDs by name, from a network, and
// frees the addresses that only they covered. The machines of these nodes must be off, because only
// DanmEps cover the addresses of their Pods from then on.
func (c *Collector) FreeGoneNodes(ctx context.Context, key network.Key, gone map[string]string) (freed int64, err error) {
	err = c.change(ctx, "remove deleted nodes from", key, func(d *draft) error {
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

// noUse reports no use: the controller knows of none except entries and DanmEps.
func noUse(netip.Addr) bool { return false }

// RemoveFinalizer removes the finalizer danm.io/in-use from a network in deletion that is no longer
// in use, and reports whether the finalizer is removed. It reads the network, then lists the
// DanmEps, then writes with the resourceVersion of that read. A node must add an entry to the
// network's status before it uses the network, and so causes a conflict. The error is
// status.ErrConflict if the network was changed.
func (c *Collector) RemoveFinalizer(ctx context.Context, key network.Key) (done bool, err error) {
	newest := c.versions.Newest(key)
	obj, err := ask(ctx, c.cfg.Timeout, func(ctx context.Context) (*status.Object, error) { return c.store.Get(ctx, key.Ref) })
	switch {
	case errors.Is(err, status.ErrNotFound), err == nil && obj.UID != key.UID:
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read network %v: %w", key.Ref, err)
	case status.IsOlder(obj.ResourceVersion, newest): // it may have lost entries: it recovers first
		return false, c.change(ctx, "recover", key, func(*draft) error { return nil })
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
		return false, fmt.Errorf("remove finalizer from network %v: %w", key.Ref, err)
	}
	return true, nil
}

// AddFinalizer adds the finalizer danm.io/in-use to a network that is not in deletion. Nodes add it
// before they use a network; DanmEps that others wrote, such as DANM, do without. It writes an empty
// status.ipam before, as nodes do: a network that has the finalizer and no status.ipam counts as
// restored from a backup, and no claim succeeds until all nodes have reported. The first claim builds
// the bitmaps from the DanmEps. The error is status.ErrConflict if the network was changed.
func (c *Collector) AddFinalizer(ctx context.Context, key network.Key) error {
	newest := c.versions.Newest(key)
	obj, err := ask(ctx, c.cfg.Timeout, func(ctx context.Context) (*status.Object, error) { return c.store.Get(ctx, key.Ref) })
	switch {
	case errors.Is(err, status.ErrNotFound), err == nil && (obj.UID != key.UID || obj.Deleting || obj.Protected):
		return nil
	case err != nil:
		return fmt.Errorf("read network %v: %w", key.Ref, err)
	case status.IsOlder(obj.ResourceVersion, newest): // a write would hide the rollback from the nodes
		return c.change(ctx, "recover", key, func(*draft) error { return nil })
	}
	if obj.IPAM == nil {
		next := *obj
		next.IPAM = &v1.IPAMStatus{}
		obj, err = ask(ctx, c.cfg.Timeout, func(ctx context.Context) (*status.Object, error) { return c.store.Update(ctx, &next) })
		if err != nil {
			return fmt.Errorf("write first status of network %v: %w", key.Ref, err)
		}
	}
	_, err = ask(ctx, c.cfg.Timeout, func(ctx context.Context) (*status.Object, error) { return c.store.Protect(ctx, obj, true) })
	if err != nil && !errors.Is(err, status.ErrNotFound) {
		return fmt.Errorf("add finalizer to network %v: %w", key.Ref, err)
	}
	return nil
}

// Recover starts a network's recovery if a node reports a rollback, and a new one if a node reports
// another rollback during the recovery. It ends the recovery when each of the nodes has reported to
// it or is in skip, and returns the nodes that it awaits. A node whose reports have started too many
// recoveries is deferred: its further reports start none for some time.
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

// nodesThatBegin returns the nodes whose reports of a rollback start a recovery. It defers a node
// together with its last permitted recovery, so that its next report stops no claims.
func (c *Collector) nodesThatBegin(d *draft, key network.Key) (began []string) {
	now := time.Now()
	deferred := map[string]metav1.MicroTime{}
	for name, until := range d.Next.IPAM.RecoveryDeferredUntil { // a previous leader may have set it
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

// change reads an object with quorum, then lists its DanmEps, applies f, and writes the result with
// the resourceVersion of that read. It retries after a conflict. verb is for its errors.
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
		return fmt.Errorf("%w: it was deleted and created again", status.ErrNotFound)
	}
	if obj.IPAM == nil {
		return nil // the first node that uses it initializes or rebuilds it
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
		return fmt.Errorf("%w: it was rolled back, and is recovering", status.ErrTryAgain)
	}
	return nil
}

// plan returns the object after f, and whether it differs.
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

// ask makes one request to the store, with a timeout.
func ask[T any](ctx context.Context, timeout time.Duration, request func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return request(ctx)
}

// draft is a change of a network's status by the controller.
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

// startRecovery starts the recovery of an object that was rolled back. Its start time is later than
// that of any other recovery, because nodes distinguish recoveries by it.
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

// endRecovery ends the recovery. It also removes the reports of rollbacks of nodes that it did not
// wait for.
func (d *draft) endRecovery() {
	d.Next.IPAM.Recovering = nil
	for name, h := range d.Next.IPAM.Held {
		if d.reportsRollback(name) {
			h.Rollback = nil
			d.Next.IPAM.Held[name] = h
		}
	}
}
