// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"net/netip"
	"time"
)

// lookEvery is how often a holder reads an object whose metadata moves.
const lookEvery = 5 * time.Second

// deadEvery is how often a recovering node looks whether its dead DanmEps are gone.
const deadEvery = time.Second

// Look says that the metadata of a network has moved to that resourceVersion, as a
// watch tells. It returns at once. If this node holds addresses there, it reads the
// object before long: others may want them, or the network is being deleted. A
// version older than one seen before means that the cluster's state was restored.
func (a *Allocator) Look(key Key, resourceVersion string) {
	behind, back := a.versions.watch(key, resourceVersion)
	d := a.find(key)
	if d == nil && back {
		d = a.open(key)
	}
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if back {
		d.dirty = true
		d.poke()
		return
	}
	if !behind && d.shelf.Load() == nil && len(d.book.rest) == 0 && len(d.book.quarantine) == 0 {
		return
	}
	d.look = true
	if d.moved(time.Now()) {
		d.dirty = true
		d.poke()
		return
	}
	d.schedule(time.Now())
}

// Gone says that the watch knows a network no more.
func (a *Allocator) Gone(key Key) {
	a.versions.forget(key)
	if d := a.find(key); d != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.dirty = true
		d.poke()
	}
}

// Missing says that a DanmEp of this node, which had existed, is gone though this
// node has not removed it: older state was restored. Its addresses are covered by
// the node's entry again, and the network recovers.
func (a *Allocator) Missing(key Key, owner string, a4, a6 netip.Addr) {
	d := a.desk(key)
	defer d.mu.Unlock()
	addrs := both(a4, a6)
	news := len(addrs) == 0
	for _, addr := range d.book.owned(owner, addrs) {
		if d.book.uses[addr].state == published {
			d.book.set(addr, claimed)
			news = true
		}
	}
	if !news {
		return // a recovery has found that out, and covered the addresses
	}
	d.book.missing = true
	d.dirty = true
	d.poke()
}

// Reassert says that a network is recovering: this node reports what it has there,
// be it nothing.
func (a *Allocator) Reassert(key Key) {
	d := a.desk(key)
	defer d.mu.Unlock()
	d.dirty = true
	d.poke()
}

// moved reports whether it is time to read an object that has moved.
func (d *desk) moved(now time.Time) bool {
	return d.look && now.Sub(d.looked) >= lookEvery
}
