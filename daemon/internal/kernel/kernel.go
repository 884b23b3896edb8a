// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/daemon/internal/sysfs"
)

// Host is the network namespace of a node, with one netlink socket in it. Its parts
// share that socket: their requests wait for each other as they would for the
// kernel's RTNL lock. It is safe for concurrent use.
type Host struct {
	ns   *netNamespace
	conn *conn
	// locks are by link name: no slave is created on a link that is being deleted.
	locks keyedMutex
}

// Open opens the network namespace at path as the host's; "" is the process's own.
func Open(path string) (*Host, error) {
	if path == "" {
		path = "/proc/self/ns/net"
	}
	ns, err := openNamespace(path)
	if err != nil {
		return nil, fmt.Errorf("open the host's namespace: %w", err)
	}
	c, err := ns.dial()
	if err != nil {
		return nil, fmt.Errorf("open netlink in the host's namespace: %w", errClose(err, ns))
	}
	return &Host{ns: ns, conn: c}, nil
}

// Close closes the file descriptors; the links stay.
func (h *Host) Close() error {
	h.conn.close()
	return h.ns.Close()
}

// Links are the host's links.
func (h *Host) Links() *HostLinks {
	return &HostLinks{ns: h.ns, conn: h.conn, locks: &h.locks, tags: tagFilters{h.conn}, sandboxes: h.Sandboxes()}
}

// Slaves are the Pods' interfaces on links of the host.
func (h *Host) Slaves() *Slaves { return &Slaves{conn: h.conn, locks: &h.locks} }

// Functions are virtual functions of the host's network cards. pci reads the host's devices.
func (h *Host) Functions(pci sysfs.FS) *Functions {
	return &Functions{conn: h.conn, ns: h.ns, sysfs: pci, sandboxes: h.Sandboxes()}
}

// Prober probes for address conflicts on links of the host.
func (h *Host) Prober() *Prober { return &Prober{ns: h.ns, conn: h.conn} }

// Sandboxes are the network namespaces that container runtimes mount.
func (h *Host) Sandboxes() *Sandboxes { return &Sandboxes{host: h.conn, dirs: sandboxNamespaceDirs()} }

// sandboxNamespaceDirs are the directories in which runtimes mount the namespaces of
// sandboxes. Where /var/run is not a link, the second is a directory of its own.
func sandboxNamespaceDirs() []string { return []string{"/run/netns", "/var/run/netns"} }

// keyedMutex is one mutex per key. Entries stay: a node has few link names, and they recur.
type keyedMutex struct{ byKey sync.Map }

// lock locks the key's mutex and returns the function that unlocks it.
func (m *keyedMutex) lock(key string) func() {
	v, _ := m.byKey.LoadOrStore(key, new(sync.Mutex))
	mu, _ := v.(*sync.Mutex)
	mu.Lock()
	return mu.Unlock
}

// Errors for errors.Is. The errors that wrap them name the link, the namespace and the cause.
var (
	// ErrNamespaceGone means that a path is not a network namespace, or not any more.
	ErrNamespaceGone = errors.New("network namespace is gone")
	// ErrParentMissing means that the host link below a slave does not exist.
	ErrParentMissing = errors.New("parent link not found")
	// ErrParentBusy means that the parent cannot have a slave of this kind: it is a port of a
	// bridge or bond, or has slaves of another kind.
	ErrParentBusy = errors.New("parent link is used for something else")
	// ErrNameTaken means that a link that Patchbay does not manage has the name.
	ErrNameTaken = errors.New("link name is taken")
	// ErrAddressTaken means that another host or another slave of the same parent has the
	// address.
	ErrAddressTaken = errors.New("address is in use on the network")
	// ErrRejected means that the driver of a network card rejects a setting.
	ErrRejected = errors.New("the driver rejects it")
	// ErrFunctionBusy means that the interface or an RDMA device of a virtual function is in another namespace.
	ErrFunctionBusy = errors.New("interface or RDMA device of the virtual function is in another network namespace")
	// ErrFunctionReset means that a driver resets a virtual function: it is not reported, or takes no setting.
	ErrFunctionReset = errors.New("the driver resets the virtual function")
	// ErrNoLink means that the driver of a physical function cannot set a rate without a link.
	ErrNoLink = errors.New("the physical function has no link")
	// ErrInvalid means that a request can never succeed.
	ErrInvalid = errors.New("invalid request")
)

// OSRelease returns the release of the running kernel, as uname -r prints it.
func OSRelease() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("read the kernel's release: %w", err)
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}
