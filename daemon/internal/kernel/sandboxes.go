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

// sandboxNamespaceDirs is where runtimes mount the namespaces of sandboxes. Both are
// read: one may be a folder of its own where /var/run is no link.
func sandboxNamespaceDirs() []string { return []string{"/run/netns", "/var/run/netns"} }

// LiveAddresses returns the global addresses on all interfaces in the host's
// network namespace and in those that runtimes have mounted for sandboxes. It is
// for a daemon that starts and finds an address to be its node's, with no record
// of who uses it. An error means that some were not seen, and names the namespace;
// one that goes meanwhile is none.
func (k *Kernel) LiveAddresses(ctx context.Context) (map[netip.Addr]bool, error) {
	live := map[netip.Addr]bool{}
	if err := addLiveAddresses(k.hostConn, live); err != nil {
		return nil, fmt.Errorf("addresses of the host: %w", err)
	}
	seen := map[namespaceID]bool{}
	for _, folder := range sandboxNamespaceDirs() {
		if err := addLiveAddressesBelow(ctx, folder, seen, live); err != nil {
			return nil, fmt.Errorf("addresses in %w", err)
		}
	}
	return live, nil
}

// addLiveAddressesBelow adds the addresses in all namespaces of a folder that were not seen.
func addLiveAddressesBelow(ctx context.Context, folder string, seen map[namespaceID]bool, live map[netip.Addr]bool) error {
	return forEachNamespace(ctx, folder, seen, func(c *conn) error { return addLiveAddresses(c, live) })
}

// addLiveAddresses adds the global addresses of the namespace that the socket is of.
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

// LinksInUse returns the names of the host's links that another link is on: in the
// host's namespace, or in one that a runtime has mounted for a sandbox. There a link
// says the index of its parent and that it is elsewhere, not where: one more than
// there are may be named, none is missed. Ports of a bridge are in use, too.
func (k *Kernel) LinksInUse(ctx context.Context) (map[string]bool, error) {
	return k.linksInUse(ctx, sandboxNamespaceDirs())
}

func (k *Kernel) linksInUse(ctx context.Context, folders []string) (map[string]bool, error) {
	used, names := map[string]bool{}, map[int]string{}
	var here, elsewhere []int
	err := forEachLink(k.hostConn, func(l netlink.Link) {
		a := l.Attrs()
		names[a.Index] = a.Name
		if a.MasterIndex != 0 {
			here = append(here, a.Index)
		}
		if a.NetNsID < 0 && l.Type() != "veth" {
			here = append(here, a.ParentIndex)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("what is on links of the host: %w", err)
	}
	seen := map[namespaceID]bool{}
	for _, folder := range folders {
		err := forEachNamespace(ctx, folder, seen, func(c *conn) error {
			return forEachLink(c, func(l netlink.Link) {
				if l.Attrs().NetNsID >= 0 && l.Type() != "veth" {
					elsewhere = append(elsewhere, l.Attrs().ParentIndex)
				}
			})
		})
		if err != nil {
			return nil, fmt.Errorf("links in %w", err)
		}
	}
	for _, index := range append(here, elsewhere...) {
		if name := names[index]; name != "" {
			used[name] = true
		}
	}
	return used, nil
}

// forEachLink visits the links of the namespace that the socket is of.
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

// forEachNamespace visits all namespaces of a folder that were not seen; one that goes meanwhile
// is left out.
func forEachNamespace(ctx context.Context, folder string, seen map[namespaceID]bool, visit func(*conn) error) error {
	files, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list network namespaces: %w", err)
	}
	for _, file := range files {
		if !file.Type().IsRegular() && file.Type() != os.ModeSymlink {
			continue // a namespace is neither a folder nor a pipe
		}
		path := filepath.Join(folder, file.Name())
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := visitNamespace(path, seen, visit); err != nil && !errors.Is(err, ErrNamespaceGone) {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// namespaceID tells namespaces apart: the device and inode of their file.
type namespaceID struct{ device, inode uint64 }

// visitNamespace visits the namespace at path, unless it was seen. What is no namespace is
// ErrNamespaceGone.
func visitNamespace(path string, seen map[namespaceID]bool, visit func(*conn) error) error {
	ns, err := openNamespace(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(ns.fd), &stat); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
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
