// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

// Source is an interface of a Pod, with what its frames may name as their sender.
type Source struct {
	// Link is the name of the host link below.
	Link string
	// Pod is whose it is: its interfaces on the link may send with each other's addresses,
	// as the kernel chooses the interface by the destination. Empty for none.
	Pod string
	// MAC of the interface; nil is the link's.
	MAC net.HardwareAddr
	// V4 and V6 are its addresses, the zero Addr for none.
	V4, V6 netip.Addr
}

// SourceGuard keeps Pods from sending with the MAC or address of another into the network: the
// nftables table netdev patchbay drops what leaves the host by a guarded link and is not
// from an interface on it. It works on the host's link, where a Pod reaches it neither
// with CAP_NET_ADMIN nor by sockets that leave out the filters of its own interface.
// Frames between Pods of one link do not pass there.
//
// All frames are read as bytes from the MAC header on. What the kernel says of a frame, its
// protocol first of all, is what the sender's socket said.
//
// It is safe for concurrent use.
type SourceGuard struct {
	ns *os.File

	mu sync.Mutex // guards what follows, and the table
	// sources are the interfaces by link and by the name that Permit got, also on links
	// that are not guarded.
	sources map[string]map[string]Source
	// guardedLinks are the MACs of links that are to be guarded; nil before the first Apply.
	guardedLinks map[string]net.HardwareAddr
	// lastError is the error of the last change of the table; nil when it succeeded.
	lastError error
	// lastChains are the chains as the kernel described them after the last change; nil before,
	// and empty when there is no table.
	lastChains map[string]string
}

// OpenSourceGuard takes the network namespace at path; "" is the process's own.
func OpenSourceGuard(path string) (*SourceGuard, error) {
	ns, err := openNamespace(path)
	if err != nil {
		return nil, err
	}
	return &SourceGuard{ns: ns, sources: map[string]map[string]Source{}}, nil
}

// Close releases the file descriptor; the table stays.
func (g *SourceGuard) Close() error { return g.ns.Close() }

// Restore takes in the sources that a daemon before this one permitted, by name. It is for the
// start, before Apply.
func (g *SourceGuard) Restore(sources map[string]Source) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, s := range sources {
		g.recordSource(name, s)
	}
}

func (g *SourceGuard) recordSource(name string, s Source) {
	if g.sources[s.Link] == nil {
		g.sources[s.Link] = map[string]Source{}
	}
	g.sources[s.Link][name] = s
}

// Permit lets frames of an interface pass. It is to be called after Apply got the link, and
// before the interface is made. With strict it fails where the kernel cannot guard.
func (g *SourceGuard) Permit(name string, s Source, strict bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.recordSource(name, s)
	parent, guarded := g.guardedLinks[s.Link]
	if !guarded {
		return nil
	}
	if errors.Is(g.lastError, netwatcher.ErrSourceGuardUnsupported) && !strict {
		return nil
	}
	err := g.lastError
	if err == nil {
		err = g.changeElements(g.podElements(parent, s), (*nftables.Conn).SetAddElements)
	}
	if err != nil { // something else may have removed the table
		g.lastError = g.withConn(func(c *nftables.Conn) error {
			_, err := g.applyTable(c, nil)
			return err
		})
		err = g.lastError
	}
	if err != nil {
		delete(g.sources[s.Link], name)
		return fmt.Errorf("permit frames of a Pod on link %s: %w", s.Link, err)
	}
	return nil
}

// Revoke takes back what Permit did under the name. What cannot be removed from the table
// now is removed by the next Apply.
func (g *SourceGuard) Revoke(link, name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, ok := g.sources[link][name]
	if !ok {
		return
	}
	parent, guarded := g.guardedLinks[link]
	before := elements{}
	if guarded { // else, as before the first Apply, the link's MAC is not known
		before = g.podElements(parent, s)
	}
	delete(g.sources[link], name)
	if len(g.sources[link]) == 0 {
		delete(g.sources, link)
	}
	if !guarded || g.lastError != nil {
		return
	}
	gone := before.subtract(g.linkElements(link, parent)) // slaves of an IPVLAN share some
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

// podElements are those of a source and of the others of its Pod on the link.
func (g *SourceGuard) podElements(parent net.HardwareAddr, s Source) elements {
	e := elements{}
	list := []Source{s}
	for _, other := range g.sources[s.Link] {
		if s.Pod != "" && other.Pod == s.Pod {
			list = append(list, other)
		}
	}
	e.addPod(parent, list)
	return e
}

// linkElements are those of a link.
func (g *SourceGuard) linkElements(link string, parent net.HardwareAddr) elements {
	e := elements{}
	e.add(setMACs, link, parent)
	e.add(setProbers, link, parent)
	pods := map[string][]Source{}
	for name, s := range g.sources[link] {
		key := "pod " + s.Pod
		if s.Pod == "" {
			key = "source " + name
		}
		pods[key] = append(pods[key], s)
	}
	for _, list := range pods {
		e.addPod(parent, list)
	}
	return e
}

// Apply implements netwatcher.SourceGuard. A table that something else changed or removed is
// written again. Each change is one transaction: no frame meets a link that is guarded and
// whose Pods are not permitted.
func (g *SourceGuard) Apply(ctx context.Context, links []netwatcher.GuardedLink) (changed bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	g.guardedLinks = map[string]net.HardwareAddr{}
	var kept []netwatcher.GuardedLink
	for _, l := range links {
		if l.OnlyIfGuarded {
			kept = append(kept, l)
		} else {
			g.guardedLinks[l.Name] = l.MAC
		}
	}
	if len(g.guardedLinks) == 0 && g.lastChains != nil && len(g.lastChains) == 0 {
		return false, nil
	}
	g.lastError = g.withConn(func(c *nftables.Conn) error {
		changed, err = g.applyTable(c, kept)
		return err
	})
	if errors.Is(g.lastError, netwatcher.ErrSourceGuardUnsupported) && len(g.guardedLinks) == 0 {
		g.lastError, g.lastChains = nil, map[string]string{} // there is no table, and none is needed
	}
	return changed, g.lastError
}

// Remove takes the table away, for a node that Patchbay leaves.
func (g *SourceGuard) Remove(ctx context.Context) error {
	_, err := g.Apply(ctx, nil)
	return err
}

// withConn runs fn with a socket in the namespace.
func (g *SourceGuard) withConn(fn func(*nftables.Conn) error) error {
	err := withConn(g.ns, fn)
	for _, e := range []error{unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EOPNOTSUPP} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", netwatcher.ErrSourceGuardUnsupported, err)
		}
	}
	return err
}

var _ netwatcher.SourceGuard = (*SourceGuard)(nil)
