// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/patchbay-cni/patchbay/network"
)

// Key names one life of a network object. It is comparable.
type Key struct {
	// Ref names the object.
	Ref network.Ref
	// UID tells it from another object of the same name.
	UID string
}

// KeyOf returns the key of a network.
func KeyOf(n *network.Network) Key { return Key{Ref: n.Ref, UID: n.UID} }

// Want is what an interface asks of one family.
type Want struct {
	// Dynamic asks for any free address of the pool.
	Dynamic bool
	// Static asks for this address; not with Dynamic. Neither: none.
	Static netip.Addr
}

// Phase is how far the use of an address has come, as the node's journal has it.
type Phase int

const (
	// Claimed is in use or about to be, and its DanmEp may not exist.
	Claimed Phase = iota
	// Published is in use and its DanmEp exists.
	Published
	// Releasing is no longer in use. How far its release came is not known:
	// it may be over, and the address somebody else's.
	Releasing
)

// Use is an attachment that this node answers for.
type Use struct {
	// Key is the network.
	Key Key
	// V4 and V6 are its addresses; both invalid on a network without.
	V4, V6 netip.Addr
	// Phase is how far it has come.
	Phase Phase
}

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
	// gateways: those of the nodes' own NICs. It is called for each plan; nil
	// means none.
	Reserved func(*network.Network) []netip.Addr
	// Idle is how long published addresses may stay in the entry when nothing
	// else is written; 2 s when zero.
	Idle time.Duration
	// Timeout bounds one request to the store; 10 s when zero.
	Timeout time.Duration
	// Backoff is the first bound of the random wait after a conflict; it
	// doubles up to 2 s. 5 ms when zero.
	Backoff time.Duration
	// Rand returns a number in [0,1), for jitter; math/rand when nil.
	Rand func() float64
}

func (c Config) withDefaults() Config {
	if c.Reserved == nil {
		c.Reserved = func(*network.Network) []netip.Addr { return nil }
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
