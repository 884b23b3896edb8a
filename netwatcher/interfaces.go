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
	// State reads the links.
	State(ctx context.Context) (*State, error)
	// Apply applies one change. It changes no link that Patchbay does not manage, and leaves no
	// unfinished link behind after an error. With OnlyUnfinished it deletes no finished link.
	Apply(ctx context.Context, c Change) error
	// Watch calls changed with the name of every link that appears, changes or disappears, and
	// with "" if it may have missed some, until ctx ends.
	Watch(ctx context.Context, changed func(link string)) error
	// LinksInUse returns the names of the host's links that have another link on top in any
	// namespace, also those of Pods that are not in the journal.
	LinksInUse(ctx context.Context) (map[string]bool, error)
}

// Firewall lets only other nodes send into the host's VXLANs. VXLAN itself accepts a packet from
// any sender, such as a Pod without capabilities, and learns from it.
type Firewall interface {
	// Apply applies the filter in one transaction, and reports whether it changed. The error wraps
	// ErrFilterUnsupported if the kernel cannot filter.
	Apply(ctx context.Context, f VXLANFilter) (changed bool, err error)
}

// SourceGuard drops frames that Pods send into a network with the MAC or address of another.
type SourceGuard interface {
	// Apply guards these links and no others, and reports whether something changed. Frames of
	// Pods with their own addresses pass at any time. The error wraps ErrSourceGuardUnsupported
	// if the kernel cannot guard.
	Apply(ctx context.Context, links []GuardedLink) (changed bool, err error)
}

// GuardedLink is a link whose Pods may send from their own addresses only.
type GuardedLink struct {
	// Name of the link.
	Name string
	// MAC of the link, which its IPVLAN slaves share.
	MAC net.HardwareAddr
	// OnlyIfGuarded keeps the guard of a link that is guarded already, and adds none.
	OnlyIfGuarded bool
}

// KubeClient reads networks and nodes, and writes this node's status.
type KubeClient interface {
	// Networks returns all valid networks, also those that are being deleted. After an error
	// nothing is changed. With an error that wraps ErrNetworksIncomplete it returns the known
	// networks: then nothing is deleted.
	Networks(ctx context.Context) ([]*network.Network, error)
	// NodeNetworks returns the objects of all nodes. After an error forwarding entries stay as they
	// are.
	NodeNetworks(ctx context.Context) ([]v1.NodeNetwork, error)
	// WriteStatus writes the status of this node's NodeNetwork, and creates the object if it is
	// missing.
	WriteStatus(ctx context.Context, status v1.NodeNetworkStatus) error
}

// PodLinks lists the links that Pods use.
type PodLinks interface {
	// Links returns the identities of all links that the journal's Pods use or are about to use; of
	// NICs only those with slaves that must not send VLAN tags.
	Links() (map[network.Link]bool, error)
}

// DelegateChecker checks the CNI plugins and configurations on the node, and which network is the default.
type DelegateChecker interface {
	// Check checks that the plugin and the configuration of this NetworkID are installed.
	Check(plugin, networkID string) error
	// CheckOwnFirst checks that the container runtime uses Patchbay's configuration.
	CheckOwnFirst() error
	// NodeConfiguration returns the file and the name of the CNI configuration that Pods without a network
	// get, and checks that its plugins are installed.
	NodeConfiguration(ctx context.Context) (file, name string, err error)
	// DefaultNetwork returns the ClusterNetwork default, the error of an invalid one, or neither.
	DefaultNetwork() (*network.Network, error)
}

// Observer observes a Reconciler. Its methods must not block.
type Observer interface {
	// ObserveStep observes a change that was applied, with its error.
	ObserveStep(op Op, err error)
	// ObserveReconcile observes a reconciliation, with the status after it; nil if it ended early.
	ObserveReconcile(took time.Duration, err error, status *v1.NodeNetworkStatus)
	// RecordEvent records a change of the node's state for users.
	RecordEvent(n LinkEvent)
}
