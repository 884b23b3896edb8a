// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// Config configures a Controller. NodeGracePeriod and Metrics are required.
type Config struct {
	// NodeGracePeriod is how long a Node must be gone, in every sweep, before the controller frees
	// its addresses and removes its DanmEps.
	NodeGracePeriod time.Duration
	// Metrics has the values of the metrics.
	Metrics *Metrics
	// Namespace is the controller's own. DanmEps that block the deletion of their namespace are
	// moved there; none is when it is empty.
	Namespace string
	// StuckDeletionTimeout is how long the deletion of such a DanmEp must have waited before it is
	// moved; 2 min when zero.
	StuckDeletionTimeout time.Duration
	// SweepInterval is the time between two sweeps of all networks; 45 s when zero, so that a wrong
	// bitmap is corrected within a minute, even if a watch misses an event.
	SweepInterval time.Duration
	// ChangeDelay is how long after a change a network is reconciled that was not changed before; 1
	// s when zero. Until then a damaged bitmap may lead to the allocation of an address in use.
	ChangeDelay time.Duration
	// MinInterval is the least time between two reconciliations of a network; 5 s when zero. It
	// bounds the cost of claims, each of which changes the network.
	MinInterval time.Duration
	// PoolInterval is how long a change of status.pools alone waits for further ones, in a network that
	// no node uses; 10 s when zero. It grows with the nodes (poolIntervalPerEntry).
	PoolInterval time.Duration
	// RecoveryInterval is the time between two reconciliations of a network in recovery; 3 s when
	// zero.
	RecoveryInterval time.Duration
	// Timeout bounds one reconciliation; 1 min when zero.
	Timeout time.Duration
	// Workers is how many networks are reconciled at a time; 4 when zero.
	Workers int
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// NeedsRepair reports whether an audit of a network with these endpoints may find something;
	// gc.NeedsRepair when nil.
	NeedsRepair func(*status.Object, []status.Endpoint) (bool, error)
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.SweepInterval, 45 * time.Second}, {&c.ChangeDelay, time.Second}, {&c.MinInterval, 5 * time.Second}, {&c.RecoveryInterval, 3 * time.Second}, {&c.PoolInterval, 10 * time.Second}, {&c.Timeout, time.Minute},
		{&c.StuckDeletionTimeout, 2 * time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Workers == 0 {
		c.Workers = 4
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NeedsRepair == nil {
		c.NeedsRepair = gc.NeedsRepair
	}
	return c
}

// GarbageCollector changes status.ipam on behalf of the cluster. gc.Collector implements it.
type GarbageCollector interface {
	Finalizers

	// RepairBitmap makes the bitmap agree with entries and DanmEps, and returns addresses with two owners.
	// Its findings are valid beside an error.
	RepairBitmap(ctx context.Context, key network.Key) (gc.Findings, error)
	// FreeGoneNodes removes the entries of nodes (name to UID of the entry), and frees the addresses that
	// only these entries covered.
	FreeGoneNodes(ctx context.Context, key network.Key, gone map[string]string) (freed int64, err error)
	// Recover starts a recovery that a node requests, and ends it when each of nodes has reported
	// or is skipped. It returns the nodes that are awaited.
	Recover(ctx context.Context, key network.Key, nodes, skip []string) (awaited []string, err error)
}

// Finalizers protect networks in use from deletion. gc.Collector implements it.
type Finalizers interface {
	// AddFinalizer adds the finalizer to a network that is not in deletion.
	AddFinalizer(ctx context.Context, key network.Key) error
	// RemoveFinalizer removes the finalizer of an unused network in deletion, and reports whether it is
	// removed. A conflict is status.ErrConflict.
	RemoveFinalizer(ctx context.Context, key network.Key) (done bool, err error)
}

// RollbackDetector detects from watch events that a network went back in time. gc.Collector
// implements it.
type RollbackDetector interface {
	// ObserveVersion records the resourceVersion that a watch saw of a network.
	ObserveVersion(key network.Key, resourceVersion string)
	// NetworkDeleted forgets a network that was deleted.
	NetworkDeleted(key network.Key)
}
