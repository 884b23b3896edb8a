// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/patchbay-cni/patchbay/network"
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
	// Reserved are addresses that are never handed out dynamically, besides
	// gateways: those of the nodes' own NICs. It is called for each plan, with
	// locks held, and must not block; nil means none.
	Reserved func(*network.Network) []netip.Addr
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
	if c.Reserved == nil {
		c.Reserved = func(*network.Network) []netip.Addr { return nil }
	}
	if c.Report == nil {
		c.Report = func(error) {}
	}
	if c.Idle == 0 {
		c.Idle = 2 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Backoff == 0 {
		c.Backoff = 5 * time.Millisecond
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return c
}
