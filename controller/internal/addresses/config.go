// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// Config is what a Controller needs to know. Grace and Registry are required.
type Config struct {
	// NodeGracePeriod is how long a Node must be gone without interruption before its
	// addresses and DanmEps are taken from it.
	NodeGracePeriod time.Duration
	// Registry gets the metrics.
	Registry prometheus.Registerer
	// Namespace is the controller's own: DanmEps move there that keep a namespace from
	// being deleted. None does when it is empty.
	Namespace string
	// StuckDeletionTimeout is how long the deletion of such a DanmEp must have waited; 2 min when zero.
	StuckDeletionTimeout time.Duration
	// SweepInterval is the time between two looks at all networks; 45 s when zero, so that
	// a bitmap is right within a minute, whatever the watches miss.
	SweepInterval time.Duration
	// ChangeDelay is the time between a change of a network at rest and the look at it; 1 s
	// when zero. Until then a damaged bitmap may give out an address in use.
	ChangeDelay time.Duration
	// MinInterval is the least time between two such looks at a network; 5 s when zero.
	// Changes in between cost nothing: each claim is one.
	MinInterval time.Duration
	// RecoveryInterval is the time between looks at a network in recovery; 3 s when zero.
	RecoveryInterval time.Duration
	// Timeout bounds the work on one network; 1 min when zero.
	Timeout time.Duration
	// Workers is how many networks are worked at a time; 4 when zero.
	Workers int
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// NeedsRepair reports whether an audit of a network with these endpoints may find
	// something; claims.Suspect when nil.
	NeedsRepair func(*claims.Object, []claims.Endpoint) (bool, error)
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.SweepInterval, 45 * time.Second}, {&c.ChangeDelay, time.Second}, {&c.MinInterval, 5 * time.Second}, {&c.RecoveryInterval, 3 * time.Second}, {&c.Timeout, time.Minute},
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
		c.NeedsRepair = claims.Suspect
	}
	return c
}

// GarbageCollector changes status.ipam in the name of the cluster; claims.Steward is one.
type GarbageCollector interface {
	// Audit makes the bitmap agree with entries and DanmEps, and reports addresses
	// with two owners. What it corrected counts beside an error.
	Audit(ctx context.Context, key claims.Key) (claims.Findings, error)
	// Evict removes the entries of nodes (name to UID of the entry), and frees
	// what they alone covered.
	Evict(ctx context.Context, key claims.Key, gone map[string]string) (freed int64, err error)
	// EndDeletion takes the finalizer off a network in deletion that nobody uses any
	// more, and reports whether it is off. A conflict is claims.ErrConflict.
	EndDeletion(ctx context.Context, key claims.Key) (done bool, err error)
	// Recover ends the recovery when all of nodes are done or skipped; it
	// returns who is awaited.
	Recover(ctx context.Context, key claims.Key, nodes, skip []string) (awaited []string, err error)
}

// RollbackDetector is told what a watch sees of networks, and knows by it when an object went
// back in time; claims.Steward is one.
type RollbackDetector interface {
	// Look says that a network's metadata is at that version.
	Look(key claims.Key, resourceVersion string)
	// Gone says that there is no such network any more.
	Gone(key claims.Key)
}
