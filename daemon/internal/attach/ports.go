// SPDX-License-Identifier: Apache-2.0

// Package attach attaches the interfaces of a Pod's sandbox and detaches them. It journals each step,
// and rolls back a failed ADD in reverse order. It reaches the API server, the disk and the kernel
// only through the interfaces below.
package attach

import (
	"context"
	"errors"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Errors of the interfaces below. Implementations may wrap them.
var (
	// ErrNotFound means that an object or a record does not exist.
	ErrNotFound = errors.New("not found")
	// ErrTryAgain means that a retry may succeed (CNI error 11).
	ErrTryAgain = errors.New("try again later")
	// ErrConflict means that another machine on the network uses an address.
	ErrConflict = errors.New("address conflict")
	// ErrNoDefaultNetwork means that a Pod without an annotation has no network, because there is neither a
	// default network nor another CNI configuration on the node.
	ErrNoDefaultNetwork = errors.New("no default network")
	// ErrNetworkDeleting means that the network of an interface is being deleted.
	ErrNetworkDeleting = errors.New("is being deleted and takes no new Pods")
)

// PodReader reads Pods. It reads from the API server where a cache may be stale.
type PodReader interface {
	// Pod returns the metadata of the Pod with this UID, which for a static Pod is the value of its mirror
	// annotation. With an empty uid, it reads the Pod of that name from the API server.
	Pod(ctx context.Context, namespace, name, uid string) (*corev1.Pod, error)
	// PodWithSpec reads from the API server the whole Pod whose metadata Pod returned.
	PodWithSpec(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error)
}

// KubeClient reads Pods and networks, and records Events. It reads from the API server where a cache
// may be stale.
type KubeClient interface {
	PodReader
	// Network returns the validated model, or an error that wraps ErrNotFound or names the invalid
	// field.
	Network(ctx context.Context, ref network.Ref) (*network.Network, error)
	// ReportFailure records err as a Warning on the Pod, and returns its reason, one of v1.Reasons.
	ReportFailure(pod *corev1.Pod, err error) (reason string)
	// ReportConflict records err, which wraps ErrConflict, as a Warning on the network, and on the Pod
	// unless it is nil.
	ReportConflict(pod *corev1.Pod, net *network.Network, err error)
}

// AddressRequest is the request of an interface for an address of one family.
type AddressRequest struct {
	// Dynamic requests any free address of the pool.
	Dynamic bool
	// Static requests this address. It excludes Dynamic. Without either, no address is requested.
	Static netip.Addr
}

// Addresses claims addresses and gives them back. Package ipam/allocator has the order of writes.
type Addresses interface {
	// Claim claims one address per requested family: the node's entry in the network's status covers
	// it. It creates the entry even if no family is requested. Errors name the network, the number
	// of addresses in use and what to do.
	Claim(ctx context.Context, net *network.Network, v4, v6 AddressRequest) (a4, a6 netip.Addr, err error)
	// Discard gives back claimed addresses that were not used. It does not wait for the API server,
	// and retries a failed write in the background.
	Discard(net *network.Network, a4, a6 netip.Addr)
	// Quarantine keeps all Pods from a claimed dynamic address for an hour. It gives the address back
	// and returns false when too many are in quarantine.
	Quarantine(net *network.Network, a netip.Addr) bool
}

// AddressTakenError is the error of Addresses.Claim if a Pod with a DanmEp has the static address.
type AddressTakenError struct {
	// Addr is the static address.
	Addr netip.Addr
	// Err is the allocator's error. It says how a netadmin finds the Pod.
	Err error
}

// Error implements error.
func (e *AddressTakenError) Error() string { return e.Err.Error() }

// Unwrap returns the allocator's error.
func (e *AddressTakenError) Unwrap() error { return e.Err }

// AddressOwners finds the Pods that have addresses.
type AddressOwners interface {
	// PodWithAddress returns the name of the Pod of the namespace that has the address in the
	// network, or "" if none has. It sees no other namespace.
	PodWithAddress(ctx context.Context, namespace string, ref network.Ref, a netip.Addr) (string, error)
}

// Prober detects address conflicts (RFC 5227).
type Prober interface {
	// Probe probes the addresses on a host link, and returns the MAC addresses of the machines that
	// answer in time.
	Probe(ctx context.Context, parent string, addrs []netip.Addr) (map[netip.Addr]net.HardwareAddr, error)
}

// Journal stores records. A change is on disk when its method returns.
type Journal interface {
	// Get returns the record or ErrNotFound.
	Get(containerID, ifName string) (*Record, error)
	// Put writes or replaces the record.
	Put(*Record) error
	// Delete removes the record. A missing record is no error.
	Delete(containerID, ifName string) error
	// List returns all records.
	List() ([]*Record, error)
}

// HostLinks creates the parent links of networks.
type HostLinks interface {
	// Parent returns the name of the network's host link (NIC, VLAN or VXLAN link), which it creates
	// if necessary. The error names a missing NIC.
	Parent(ctx context.Context, net *network.Network) (string, error)
	// Check returns the error that Parent would return, without creating a link.
	Check(ctx context.Context, net *network.Network) error
}

// Devices finds the devices of device plugins that kubelet has allocated to Pods.
type Devices interface {
	// Devices returns the IDs of the Pod's devices by resource name, in the order in which its
	// interfaces get them.
	Devices(ctx context.Context, pod *corev1.Pod) (map[string][]string, error)
}

// NetworkNamespaces reads the network namespaces of sandboxes.
type NetworkNamespaces interface {
	// Exists reports whether path is a network namespace. The path of a sandbox that is gone does not
	// exist, or is an empty file without a mount.
	Exists(path string) (bool, error)
}

// Preparer is a Backend that completes its interface (DelegateConfig, DeviceState) after the sandbox has claimed
// its devices, and before addresses are claimed and the record is journaled. Detach can then use the record
// even if the daemon ended during Attach.
type Preparer interface {
	// Prepare reads what Attach needs. It has no side effect.
	Prepare(ctx context.Context, req *Request, ifc *Interface) error
}

// Backend attaches and detaches one interface. Both methods are idempotent.
type Backend interface {
	// Attach creates the interface in the network namespace and completes ifc (MAC, MTU, Result). On
	// error it leaves nothing behind.
	Attach(ctx context.Context, rec *Record, ifc *Interface) error
	// Detach removes the interface. It is no error if the interface or the network namespace is gone.
	// Record.Netns is empty when the namespace is known to be gone.
	Detach(ctx context.Context, rec *Record, ifc *Interface) error
}

// Publisher processes journaled records in the background, and retries. Its methods return at once.
type Publisher interface {
	// Publish creates the DanmEps of an Attached record.
	Publish(*Record)
	// Release frees the addresses and deletes the DanmEps of a Released record, and then deletes the
	// record.
	Release(*Record)
}

// UnknownSandboxes detaches sandboxes that are not in the journal.
type UnknownSandboxes interface {
	// DetachUnknown detaches a sandbox that another CNI plugin attached before Patchbay was installed. It is no
	// error if there is none.
	DetachUnknown(ctx context.Context, req *Request) error
}
