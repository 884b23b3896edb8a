// SPDX-License-Identifier: Apache-2.0

// Package attach is what the node daemon does for one sandbox: it plans the
// interfaces of a Pod, attaches and detaches them, and rolls back in reverse
// order. It is pure but for the ports below, which its adapters fill.
package attach

import (
	"context"
	"errors"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Errors that ports answer with; errors.Is holds through wrapping.
var (
	// ErrNotFound says that an object or a record does not exist.
	ErrNotFound = errors.New("not found")
	// ErrTryAgain says that waiting helps (CNI error 11).
	ErrTryAgain = errors.New("try again later")
	// ErrConflict says that something else on the network has an address.
	ErrConflict = errors.New("address conflict")
)

// KubeClient answers from caches, and from the API server where a cache may be stale.
type KubeClient interface {
	// Pod returns the Pod with this UID (for a static Pod the UID in its mirror
	// annotation); with an empty uid, the Pod of that name from a fresh read.
	Pod(ctx context.Context, namespace, name, uid string) (*corev1.Pod, error)
	// Network returns the validated model, or an error that wraps ErrNotFound
	// or names the field that is wrong.
	Network(ctx context.Context, ref network.Ref) (*network.Network, error)
	// ReportFailure reports err as a Warning Event on the Pod.
	ReportFailure(pod *corev1.Pod, err error)
	// ReportConflict reports err, which wraps ErrConflict, as a Warning Event on the Pod and
	// on its network.
	ReportConflict(pod *corev1.Pod, net *network.Network, err error)
}

// AddressRequest is what an interface asks of one family.
type AddressRequest struct {
	// Dynamic asks for any free address of the pool.
	Dynamic bool
	// Static asks for this address; not with Dynamic. Neither: none.
	Static netip.Addr
}

// Addresses claims and gives back; see ipam/claims for the order of writes.
type Addresses interface {
	// Claim covers one address per wanted family with the node's entry, and
	// puts the entry there even when no family is wanted. Errors name the
	// network, how many addresses are in use and what to do.
	Claim(ctx context.Context, net *network.Network, v4, v6 AddressRequest) (a4, a6 netip.Addr, err error)
	// Discard gives back what Claim gave and nobody has used (roll-back). It
	// does not wait for the API server: what cannot be written now is retried.
	Discard(net *network.Network, a4, a6 netip.Addr)
	// Quarantine keeps a dynamic address that Claim gave from all Pods for a while. It
	// reports false when too many are in quarantine: the address is given back then.
	Quarantine(net *network.Network, a netip.Addr) bool
}

// Prober looks for address conflicts (RFC 5227).
type Prober interface {
	// Probe asks over the host link whether something else on the network has the
	// addresses, and returns the MACs of those that answer in time.
	Probe(ctx context.Context, parent string, addrs []netip.Addr) (map[netip.Addr]net.HardwareAddr, error)
}

// Journal keeps records on disk; each method returns after fsync.
type Journal interface {
	// Get returns the record or ErrNotFound.
	Get(containerID, ifName string) (*Record, error)
	// Put writes or replaces the record.
	Put(*Record) error
	// Delete removes the record; a missing one is no error.
	Delete(containerID, ifName string) error
	// List returns all records.
	List() ([]*Record, error)
}

// HostLinks gives the parent link of a network on this node.
type HostLinks interface {
	// Parent returns the name of the host link (NIC, VLAN or VXLAN link) for
	// the network, after making it when it is not there yet. The error says
	// which NIC is missing.
	Parent(ctx context.Context, net *network.Network) (string, error)
	// Check reports what keeps Parent from an answer, and makes nothing.
	Check(ctx context.Context, net *network.Network) error
}

// NetworkNamespaces tells whether a Pod is still there.
type NetworkNamespaces interface {
	// Exists reports whether path is a network namespace now. The path of a
	// sandbox that is gone is missing, or an empty file without a mount.
	Exists(path string) (bool, error)
}

// Preparer is a Backend that completes its interface (DelegateConfig) before
// anything is claimed and before the record is journalled, so that Detach can
// work from the journal even if the daemon ends within Attach.
type Preparer interface {
	// Prepare reads what Attach will work from; it has no side effects.
	Prepare(ctx context.Context, req *Request, ifc *Interface) error
}

// Backend makes one interface. Both methods are idempotent.
type Backend interface {
	// Attach makes the interface in the namespace and completes it (MAC, MTU,
	// Result). On error it leaves nothing behind.
	Attach(ctx context.Context, rec *Record, ifc *Interface) error
	// Detach removes the interface; that it or the namespace is gone already
	// is no error. Record.Netns is empty when the namespace is known to be gone.
	Detach(ctx context.Context, rec *Record, ifc *Interface) error
}

// Publisher works in the background from journalled records, and retries. Its
// methods return at once.
type Publisher interface {
	// Publish creates the DanmEps of an Attached record.
	Publish(*Record)
	// Release gives back addresses and DanmEps of a Released record, in the
	// order of design "Release", then deletes the record.
	Release(*Record)
}
