// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/google/nftables"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

// Source is an interface of a Pod, with the addresses that its frames may have as their source.
type Source struct {
	// Link is the name of the host link below.
	Link string
	// Pod identifies the interface's Pod: its interfaces on the link may send with each other's
	// addresses, as the kernel chooses the interface by the destination. Empty for none.
	Pod string
	// MAC of the interface; nil is the link's.
	MAC net.HardwareAddr
	// V4 and V6 are its addresses, the zero Addr for none.
	V4, V6 netip.Addr
}

// SourceGuard keeps Pods from sending into the network with the MAC or address of another. The
// nftables table netdev patchbay drops frames that leave the host by a guarded link and do not
// have the source of an interface on it. It filters on the host's link, where a Pod can bypass
// it neither with CAP_NET_ADMIN nor with sockets that skip the filters of its own interface.
// Frames between Pods of one link do not leave by the link, and are not filtered.
//
// The rules read all fields from the frame's bytes. The kernel's own metadata of a frame, such
// as its protocol, is set by the sender's socket.
//
// It is safe for concurrent use.
type SourceGuard struct {
	mu    sync.Mutex // guards what follows
	index sourceIndex
	table guardTable
	// guardedLinks are the MACs of the links that should be guarded; nil before the first Apply.
	guardedLinks map[string]net.HardwareAddr
	// lastError is the error of the last change of the table; nil if it succeeded.
	lastError error
}

// OpenSourceGuard opens the network namespace at path; "" is the process's own.
func OpenSourceGuard(path string) (*SourceGuard, error) {
	ns, err := openNamespace(path)
	if err != nil {
		return nil, err
	}
	return &SourceGuard{index: sourceIndex{}, table: guardTable{ns: ns}}, nil
}

// Close closes the file descriptor; the table stays.
func (g *SourceGuard) Close() error { return g.table.ns.Close() }

// Restore records the sources that the daemon before this one permitted, by name. Call it at
// startup, before Apply.
func (g *SourceGuard) Restore(sources map[string]Source) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, s := range sources {
		g.index.record(name, s)
	}
}

// Permit lets frames of an interface pass. Call it after Apply got the link, and before the
// interface is created. With strict it fails if the kernel cannot guard.
func (g *SourceGuard) Permit(name string, s Source, strict bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.index.record(name, s)
	parent, guarded := g.guardedLinks[s.Link]
	if !guarded {
		return nil
	}
	if errors.Is(g.lastError, netwatcher.ErrSourceGuardUnsupported) && !strict {
		return nil
	}
	err := g.lastError
	if err == nil {
		err = g.changeElements(g.index.podElements(parent, s), (*nftables.Conn).SetAddElements)
	}
	if err != nil { // another program may have removed the table
		g.lastError = g.withConn(func(c *nftables.Conn) error {
			_, err := g.applyTable(c, nil)
			return err
		})
		err = g.lastError
	}
	if err != nil {
		g.index.remove(s.Link, name)
		return fmt.Errorf("permit frames of a Pod on link %s: %w", s.Link, err)
	}
	return nil
}

// Revoke undoes Permit for the name. If the table cannot be changed now, the next Apply
// removes the elements.
func (g *SourceGuard) Revoke(link, name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, ok := g.index[link][name]
	if !ok {
		return
	}
	parent, guarded := g.guardedLinks[link]
	before := elements{}
	if guarded { // otherwise, as before the first Apply, the link's MAC is not known
		before = g.index.podElements(parent, s)
	}
	g.index.remove(link, name)
	if !guarded || g.lastError != nil {
		return
	}
	gone := before.subtract(g.index.linkElements(link, parent)) // IPVLAN slaves of a link share elements
	_ = g.changeElements(gone, (*nftables.Conn).SetDeleteElements)
}

// changeElements adds or deletes elements in one transaction.
func (g *SourceGuard) changeElements(e elements, do func(*nftables.Conn, *nftables.Set, []nftables.SetElement) error) error {
	return g.withConn(func(c *nftables.Conn) error {
		for _, s := range guardSets() {
			if keys := e.inSet(s.Name); len(keys) > 0 {
				if err := do(c, s, keys); err != nil {
					return err
				}
			}
		}
		return c.Flush()
	})
}

// Apply implements netwatcher.SourceGuard. It restores a table that another program changed or
// removed. Each change is one transaction: no frame meets a guarded link whose Pods are not
// permitted yet.
func (g *SourceGuard) Apply(ctx context.Context, links []netwatcher.GuardedLink) (changed bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	g.guardedLinks = map[string]net.HardwareAddr{}
	var onlyIfGuarded []netwatcher.GuardedLink
	for _, l := range links {
		if l.OnlyIfGuarded {
			onlyIfGuarded = append(onlyIfGuarded, l)
		} else {
			g.guardedLinks[l.Name] = l.MAC
		}
	}
	if len(g.guardedLinks) == 0 && g.table.knownMissing() {
		return false, nil
	}
	g.lastError = g.withConn(func(c *nftables.Conn) error {
		changed, err = g.applyTable(c, onlyIfGuarded)
		return err
	})
	if errors.Is(g.lastError, netwatcher.ErrSourceGuardUnsupported) && len(g.guardedLinks) == 0 {
		g.lastError = nil // no table exists, and none is needed
		g.table.lastChains = map[string]string{}
	}
	return changed, g.lastError
}

// applyTable brings the table to the guarded links and their sources. It keeps guarding those of
// onlyIfGuarded that the table guards now. The caller holds g.mu.
func (g *SourceGuard) applyTable(c *nftables.Conn, onlyIfGuarded []netwatcher.GuardedLink) (changed bool, err error) {
	chains, err := g.table.chains()
	if err != nil {
		return false, err
	}
	for _, l := range onlyIfGuarded {
		if _, guarded := chains[linkChainPrefix+l.Name]; guarded {
			g.guardedLinks[l.Name] = l.MAC
		}
	}
	return g.table.apply(c, chains, slices.Sorted(maps.Keys(g.guardedLinks)), g.index.allElements(g.guardedLinks))
}

// Remove deletes the table, for a node that Patchbay leaves.
func (g *SourceGuard) Remove(ctx context.Context) error {
	_, err := g.Apply(ctx, nil)
	return err
}

// withConn runs fn with a socket in the namespace.
func (g *SourceGuard) withConn(fn func(*nftables.Conn) error) error {
	return withConn(g.table.ns, netwatcher.ErrSourceGuardUnsupported, fn)
}

var _ netwatcher.SourceGuard = (*SourceGuard)(nil)
