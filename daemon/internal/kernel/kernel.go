// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Kernel acts on the namespace that it was opened in (the host's) and on the
// namespaces of Pods. It is safe for concurrent use.
type Kernel struct {
	hostNS    *netNamespace
	hostConn  *conn
	linkLocks keyedMutex
}

// Open takes the namespace at path for the host's; "" is the process's own.
func Open(path string) (*Kernel, error) {
	if path == "" {
		path = "/proc/self/ns/net"
	}
	home, err := openNamespace(path)
	if err != nil {
		return nil, fmt.Errorf("open the host's namespace: %w", err)
	}
	host, err := home.dial()
	if err != nil {
		return nil, fmt.Errorf("open netlink in the host's namespace: %w", errClose(err, home))
	}
	return &Kernel{hostNS: home, hostConn: host}, nil
}

// Close releases the file descriptors; links stay.
func (k *Kernel) Close() error {
	k.hostConn.close()
	return k.hostNS.Close()
}

// Exists reports whether path is a network namespace now.
func (k *Kernel) Exists(path string) (bool, error) {
	ns, err := openNamespace(path)
	if errors.Is(err, ErrNamespaceGone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, ns.Close()
}

// keyedMutex is one mutex per name. Parents are few and their names come back,
// so entries stay.
type keyedMutex struct{ byKey sync.Map }

// lock returns the function that unlocks.
func (m *keyedMutex) lock(key string) func() {
	v, _ := m.byKey.LoadOrStore(key, new(sync.Mutex))
	mu, _ := v.(*sync.Mutex)
	mu.Lock()
	return mu.Unlock
}

// Errors that callers tell apart with errors.Is; the text around them names the
// link, the namespace and the cause.
var (
	// ErrNamespaceGone says that a path is no network namespace (any more).
	ErrNamespaceGone = errors.New("network namespace is gone")
	// ErrParentMissing says that the host link below a slave does not exist.
	ErrParentMissing = errors.New("parent link not found")
	// ErrParentBusy says that the parent carries something that a slave of this
	// kind cannot share it with: a bridge or bond has it, or slaves of another kind.
	ErrParentBusy = errors.New("parent link is used for something else")
	// ErrNameTaken says that a link of somebody else has the name.
	ErrNameTaken = errors.New("link name is taken")
	// ErrAddressTaken says that another host answers to the address, or that
	// another slave of the same parent has it.
	ErrAddressTaken = errors.New("address is in use on the network")
	// ErrInvalid says that a request can never succeed as it is.
	ErrInvalid = errors.New("invalid request")
)

// OSRelease is that of the running kernel, as uname -r says it.
func OSRelease() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("read the kernel's release: %w", err)
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}
