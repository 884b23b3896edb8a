// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Config configures an Allocator. Node is required.
type Config struct {
	// Node is the name of the Node object, the key in status.ipam.held.
	Node string
	// NodeUID is its UID.
	NodeUID string
	// Incarnation counts the starts of this node's daemon (stored with its journal). The
	// first write sets the entry's seq to this or more, and always to more than before.
	Incarnation int64
	// Reserved returns the addresses of the nodes' own NICs, which are never allocated, like
	// gateways. It is called for each plan and must not block; nil means none.
	Reserved func(*network.Network) []netip.Addr
	// NodeCount returns how many nodes share the pools; nil means as many as have an
	// entry. It must not block.
	NodeCount func() int
	// Usable reports whether claims may take from warm pools: not on a node that is cut off
	// from the API server or whose Node object is gone. It is called for each claim and must
	// not lock; nil means always.
	Usable func() bool
	// NodeGone reports whether this node's Node object is known to be gone: then the
	// controller may have removed the node's entries. If neither Usable nor NodeGone is true,
	// it is unknown whether the Node object exists. Nil means never.
	NodeGone func() bool
	// LiveAddresses returns the addresses on interfaces in this node's network namespaces. It
	// is called after the start, for addresses in the node's entry that were not passed to
	// Resume; nil means that there are none.
	LiveAddresses func(context.Context) (map[netip.Addr]bool, error)
	// JournalSeq writes the seq of the node's entry in a network to the journal before the
	// allocator relies on it; 0 means that the entry may be absent. A network whose entry has
	// a lower seq was restored from a backup. Nil writes nothing.
	JournalSeq func(key network.Key, seq int64) error
	// ObserveClaim is called for each claim that no warm pool served; nil drops it.
	ObserveClaim func(took time.Duration, err error)
	// WarmPoolSize limits the pre-allocated addresses per network and family: 64 when zero,
	// none when negative.
	WarmPoolSize int
	// Cooldown is how long a released dynamic address is not allocated again: 10 s when zero,
	// no cooldown when negative.
	Cooldown time.Duration
	// WarmPoolIdleTimeout is after how long without a claim a warm pool is released; 5 min
	// when zero.
	WarmPoolIdleTimeout time.Duration
	// ReclaimTimeout is how long a claim of an exhausted pool waits for other nodes to give
	// back their warm addresses; 8 s when zero.
	ReclaimTimeout time.Duration
	// FlushDelay is how long published addresses may stay in the entry if no other change has
	// to be written; 2 s when zero.
	FlushDelay time.Duration
	// Report gets the errors that no caller gets: entries that cannot be parsed, and addresses
	// in use on this node that another node covers. It is called with locks held; nil drops
	// them.
	Report func(error)
	// Rand returns a number in [0,1), for jitter; math/rand when nil.
	Rand func() float64
}

func (c Config) withDefaults() Config {
	c = c.withFuncs()
	for d, value := range map[*time.Duration]time.Duration{
		&c.Cooldown: 10 * time.Second, &c.WarmPoolIdleTimeout: 5 * time.Minute, &c.ReclaimTimeout: 8 * time.Second,
		&c.FlushDelay: 2 * time.Second,
	} {
		if *d == 0 {
			*d = value
		}
	}
	c.Cooldown = max(c.Cooldown, 0)
	if c.WarmPoolSize == 0 {
		c.WarmPoolSize = 64
	}
	c.WarmPoolSize = max(c.WarmPoolSize, 0)
	return c
}

// withFuncs replaces each function that is nil.
func (c Config) withFuncs() Config {
	if c.Reserved == nil {
		c.Reserved = func(*network.Network) []netip.Addr { return nil }
	}
	if c.NodeCount == nil {
		c.NodeCount = func() int { return 1 }
	}
	if c.Usable == nil {
		c.Usable = func() bool { return true }
	}
	if c.NodeGone == nil {
		c.NodeGone = func() bool { return false }
	}
	if c.LiveAddresses == nil {
		c.LiveAddresses = func(context.Context) (map[netip.Addr]bool, error) { return nil, nil }
	}
	if c.JournalSeq == nil {
		c.JournalSeq = func(network.Key, int64) error { return nil }
	}
	if c.ObserveClaim == nil {
		c.ObserveClaim = func(time.Duration, error) {}
	}
	if c.Report == nil {
		c.Report = func(error) {}
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return c
}
