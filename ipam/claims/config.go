// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Config is what an Allocator needs to know. Node is required.
type Config struct {
	// Node is the name of the Node object, the key in held.
	Node string
	// NodeUID is its UID.
	NodeUID string
	// Life counts the starts of this node's daemon (kept with its journal). An
	// entry's seq becomes at least this, and always more than it was.
	Life int64
	// Reserved are addresses that are never handed out, besides
	// gateways: those of the nodes' own NICs. It is called for each plan, with
	// locks held, and must not block; nil means none.
	Reserved func(*network.Network) []netip.Addr
	// Nodes returns how many nodes share the pools; nil means as many as have an
	// entry. It must not block.
	Nodes func() int
	// Usable reports whether addresses may be handed out of holds: not on a node that
	// is cut off or whose Node object is gone. It is called for each claim and must
	// not lock; nil means always.
	Usable func() bool
	// Gone reports whether this node's Node object is known to be gone: then its entries
	// may have been evicted. Not Usable and not Gone is not known. Nil means never.
	Gone func() bool
	// Live returns the addresses on interfaces in this node's network namespaces. It
	// is asked at the start, about addresses in the node's entry that Resume was not
	// told of; nil means that there are none.
	Live func(context.Context) (map[netip.Addr]bool, error)
	// Remember journals the seq of the node's entry in a network before that is
	// relied upon; 0 means that the entry may be absent. A network whose entry is
	// older than that was restored from a backup. Nil remembers nothing.
	Remember func(key Key, seq int64) error
	// Observe is told of each claim that no hold served; nil drops it.
	Observe func(took time.Duration, err error)
	// Hold bounds the addresses that are kept ready per network and family: 64 when
	// zero, none when negative.
	Hold int
	// Cool is how long a released dynamic address rests: 10 s when zero, not at all
	// when negative.
	Cool time.Duration
	// Quarantine is how long an address is kept from Pods that something else on the
	// network has; 1 h when zero.
	Quarantine time.Duration
	// Rest is after how long without a claim a hold is given back; 5 min when zero.
	Rest time.Duration
	// Patience is how long a claim of an exhausted pool waits for other nodes to give
	// back what they hold; 8 s when zero.
	Patience time.Duration
	// Idle is how long published addresses may stay in the entry when nothing
	// else is written; 2 s when zero.
	Idle time.Duration
	// Timeout bounds one request to the store; 10 s when zero.
	Timeout time.Duration
	// Backoff is the least first bound of the random wait after a conflict, which
	// else is what the attempt took; it doubles up to 2 s. 5 ms when zero.
	Backoff time.Duration
	// Report is told what no caller can be told: entries that cannot be read,
	// addresses in use here that somebody else covers. It is called with
	// locks held; nil drops it.
	Report func(error)
	// Rand returns a number in [0,1), for jitter; math/rand when nil.
	Rand func() float64
}

func (c Config) withDefaults() Config {
	c = c.withFuncs()
	for d, value := range map[*time.Duration]time.Duration{
		&c.Cool: 10 * time.Second, &c.Quarantine: time.Hour, &c.Rest: 5 * time.Minute, &c.Patience: 8 * time.Second,
		&c.Idle: 2 * time.Second, &c.Timeout: 10 * time.Second, &c.Backoff: 5 * time.Millisecond,
	} {
		if *d == 0 {
			*d = value
		}
	}
	c.Cool = max(c.Cool, 0)
	if c.Hold == 0 {
		c.Hold = 64
	}
	c.Hold = max(c.Hold, 0)
	return c
}

// withFuncs has something in place of each function that is nil.
func (c Config) withFuncs() Config {
	if c.Reserved == nil {
		c.Reserved = func(*network.Network) []netip.Addr { return nil }
	}
	if c.Nodes == nil {
		c.Nodes = func() int { return 1 }
	}
	if c.Usable == nil {
		c.Usable = func() bool { return true }
	}
	if c.Gone == nil {
		c.Gone = func() bool { return false }
	}
	if c.Live == nil {
		c.Live = func(context.Context) (map[netip.Addr]bool, error) { return nil, nil }
	}
	if c.Remember == nil {
		c.Remember = func(Key, int64) error { return nil }
	}
	if c.Observe == nil {
		c.Observe = func(time.Duration, error) {}
	}
	if c.Report == nil {
		c.Report = func(error) {}
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return c
}
