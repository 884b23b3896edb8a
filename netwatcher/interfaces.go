// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"net"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Kernel reads and changes the host's links.
type Kernel interface {
	// State reads all of it.
	State(ctx context.Context) (*State, error)
	// Apply takes one step. It refuses to change a link that is not ours, leaves no
	// half of a link behind, and a Delete of a HalfMade one leaves a whole one alone.
	Apply(ctx context.Context, c Change) error
	// Watch calls changed with the name of every link that appears, changes or
	// goes, until ctx ends; with "" when it may have missed some.
	Watch(ctx context.Context, changed func(link string)) error
	// LinksInUse returns the names of the host's links that another link is on, in
	// whatever namespace it is: also those of Pods that the journal has nothing of.
	LinksInUse(ctx context.Context) (map[string]bool, error)
}

// Firewall keeps strangers out of the host's VXLANs. VXLAN itself takes a packet from
// any sender, a Pod without any capability among them, and learns from it.
type Firewall interface {
	// Apply makes the packet filter of Patchbay what f says, in one step, and reports
	// whether it had to change. The error wraps ErrNoFilter when the kernel cannot.
	Apply(ctx context.Context, f VXLANFilter) (changed bool, err error)
}

// SourceGuard drops what Pods send into a network with the MAC or address of another.
type SourceGuard interface {
	// Apply guards these links and no others, and reports whether something had to change.
	// The honest frames of Pods that are on a link always pass. The error wraps
	// ErrNoSourceGuard when the kernel cannot.
	Apply(ctx context.Context, links []GuardedLink) (changed bool, err error)
}

// GuardedLink is a link whose Pods send from their own addresses only.
type GuardedLink struct {
	// Name of the link.
	Name string
	// MAC of the link, which its IPVLAN slaves share.
	MAC net.HardwareAddr
	// OnlyIfGuarded says that it is guarded only if it is already.
	OnlyIfGuarded bool
}

// KubeClient tells what the networks and the other nodes need.
type KubeClient interface {
	// Networks returns all valid networks, also those being deleted. An error
	// says that they are not known yet: then nothing is changed. One that wraps
	// ErrIncomplete comes with those that are known: then nothing is removed.
	Networks(ctx context.Context) ([]*network.Network, error)
	// NodeNetworks returns all nodes' objects. An error says that they are not
	// known yet: then forwarding entries stay as they are.
	NodeNetworks(ctx context.Context) ([]v1.NodeNetwork, error)
	// WriteStatus writes this node's NodeNetwork, making it when it is missing.
	WriteStatus(ctx context.Context, status v1.NodeNetworkStatus) error
}

// PodLinks tells what Pods are on.
type PodLinks interface {
	// Links returns the identities of all links that the journal's Pods use or
	// are about to use; of NICs those with slaves of ours that may send no VLAN tags.
	Links() (map[network.Link]bool, error)
}

// Observer is told what the Reconciler does. Its methods must not block.
type Observer interface {
	// ObserveStep says that a step was taken, and how it went.
	ObserveStep(op Op, err error)
	// ObserveReconcile says how long a round took and how it went, and what is there after it.
	ObserveReconcile(took time.Duration, err error, status *v1.NodeNetworkStatus)
	// RecordEvent says what got better or worse, for people to read.
	RecordEvent(n LinkEvent)
}
