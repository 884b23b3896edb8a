// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"net/netip"

	"github.com/patchbay-cni/patchbay/internal/network"
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
	// Owner is the attachment: the name of its DanmEp, which is unique.
	Owner string
	// V4 and V6 are its addresses; both invalid on a network without.
	V4, V6 netip.Addr
	// Static4 and Static6 say that the address was asked for by name: it is freed
	// at once, without a rest, and never held.
	Static4, Static6 bool
	// Phase is how far it has come.
	Phase Phase
}

// static reports whether an address of the use was asked for by name.
func (u Use) static(a netip.Addr) bool { return a.Is4() && u.Static4 || a.Is6() && u.Static6 }
