// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Sandboxes are the network namespaces that container runtimes mount for Pods.
type Sandboxes struct {
	// host is a socket in the host's namespace.
	host *conn
	dirs []string
}

// Exists reports whether path is a network namespace now.
func (s *Sandboxes) Exists(path string) (bool, error) {
	ns, err := openNamespace(path)
	if errors.Is(err, ErrNamespaceGone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, ns.Close()
}

// LiveAddresses returns the global addresses of all interfaces in the host's namespace
// and in those of sandboxes. A daemon that starts uses it for addresses that are assigned
// to its node without a record of the Pod. Namespaces that are deleted meanwhile are
// skipped; any other namespace that cannot be read is an error, which names it.
func (s *Sandboxes) LiveAddresses(ctx context.Context) (map[netip.Addr]bool, error) {
	live := map[netip.Addr]bool{}
	if err := addLiveAddresses(s.host, live); err != nil {
		return nil, fmt.Errorf("addresses of the host: %w", err)
	}
	err := s.forEach(ctx, func(c *conn) error { return addLiveAddresses(c, live) })
	if err != nil {
		return nil, fmt.Errorf("addresses in %w", err)
	}
	return live, nil
}

// addLiveAddresses adds the global addresses of the socket's namespace.
func addLiveAddresses(c *conn, live map[netip.Addr]bool) error {
	msgs, err := c.dump(unix.RTM_GETADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC))
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, m := range msgs {
		a, err := parseAddress(m)
		if err != nil {
			return err
		}
		if a.Addr().IsGlobalUnicast() {
			live[a.Addr().Unmap()] = true
		}
	}
	return nil
}

// LinksInUse returns the names of the host's links that have another link on top, in the
// host's namespace or in a sandbox, and of the ports of bridges. The namespace of a
// parent's index is not compared: the result may have a name too many, but misses none.
func (s *Sandboxes) LinksInUse(ctx context.Context) (map[string]bool, error) {
	names := map[int]string{}
	var parents []int
	err := forEachLink(s.host, func(l netlink.Link) {
		a := l.Attrs()
		names[a.Index] = a.Name
		if a.MasterIndex != 0 {
			parents = append(parents, a.Index)
		}
		if a.NetNsID < 0 && l.Type() != "veth" {
			parents = append(parents, a.ParentIndex)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("links of the host: %w", err)
	}
	err = s.forEach(ctx, func(c *conn) error {
		return forEachLink(c, func(l netlink.Link) {
			if l.Attrs().NetNsID >= 0 && l.Type() != "veth" {
				parents = append(parents, l.Attrs().ParentIndex)
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("links in %w", err)
	}
	used := map[string]bool{}
	for _, index := range parents {
		if name := names[index]; name != "" {
			used[name] = true
		}
	}
	return used, nil
}

// forEachLink calls visit for each link of the socket's namespace.
func forEachLink(c *conn, visit func(netlink.Link)) error {
	msgs, err := c.listLinks()
	if err != nil {
		return err
	}
	for _, m := range msgs {
		link, err := netlink.LinkDeserialize(nil, m)
		if err != nil {
			return fmt.Errorf("read a link: %w", err)
		}
		visit(link)
	}
	return nil
}

// forEach calls visit once for each namespace. Namespaces that are deleted meanwhile are skipped.
func (s *Sandboxes) forEach(ctx context.Context, visit func(*conn) error) error {
	seen := map[namespaceID]bool{}
	for _, dir := range s.dirs {
		files, err := os.ReadDir(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list network namespaces: %w", err)
		}
		for _, file := range files {
			if !file.Type().IsRegular() && file.Type() != os.ModeSymlink {
				continue // a namespace is neither a directory nor a pipe
			}
			path := filepath.Join(dir, file.Name())
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if err := visitNamespace(path, seen, visit); err != nil && !errors.Is(err, ErrNamespaceGone) {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return nil
}

// namespaceID identifies a namespace by the device and inode of its file.
type namespaceID struct{ device, inode uint64 }

// visitNamespace calls visit for the namespace at path, unless seen has it. A path that is not a
// namespace is ErrNamespaceGone.
func visitNamespace(path string, seen map[namespaceID]bool, visit func(*conn) error) error {
	ns, err := openNamespace(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(ns.fd), &stat); err != nil {
		return fmt.Errorf("stat %s: %w", path, err)
	}
	id := namespaceID{stat.Dev, stat.Ino}
	if seen[id] {
		return nil
	}
	seen[id] = true
	c, err := ns.dial()
	if err != nil {
		return err
	}
	defer c.close()
	return visit(c)
}
