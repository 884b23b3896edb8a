// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"sync"
)

// Kernel acts on the namespace that it was opened in (the host's) and on the
// namespaces of Pods. It is safe for concurrent use.
type Kernel struct {
	home    *namespace
	host    *conn
	parents keyedMutex
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
	return &Kernel{home: home, host: host}, nil
}

// Close releases the file descriptors; links stay.
func (k *Kernel) Close() error {
	k.host.close()
	return k.home.Close()
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
