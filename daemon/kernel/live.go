// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// namespaceFolders is where runtimes mount the namespaces of sandboxes. Both are
// read: one may be a folder of its own where /var/run is no link.
func namespaceFolders() []string { return []string{"/run/netns", "/var/run/netns"} }

// LiveAddresses returns the global addresses on all interfaces in the host's
// network namespace and in those that runtimes have mounted for sandboxes. It is
// for a daemon that starts and finds an address to be its node's, with no record
// of who uses it. An error means that some were not seen, and names the namespace;
// one that goes meanwhile is none.
func (k *Kernel) LiveAddresses(ctx context.Context) (map[netip.Addr]bool, error) {
	live := map[netip.Addr]bool{}
	if err := readLive(k.host, live); err != nil {
		return nil, fmt.Errorf("addresses of the host: %w", err)
	}
	seen := map[identity]bool{}
	for _, folder := range namespaceFolders() {
		if err := liveBelow(ctx, folder, seen, live); err != nil {
			return nil, fmt.Errorf("addresses in %w", err)
		}
	}
	return live, nil
}

// liveBelow adds the addresses in all namespaces of a folder that were not seen.
func liveBelow(ctx context.Context, folder string, seen map[identity]bool, live map[netip.Addr]bool) error {
	return below(ctx, folder, seen, func(c *conn) error { return readLive(c, live) })
}

// identity tells namespaces apart: the device and inode of their file.
type identity struct{ device, inode uint64 }

// below visits all namespaces of a folder that were not seen; one that goes meanwhile
// is left out.
func below(ctx context.Context, folder string, seen map[identity]bool, visit func(*conn) error) error {
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
		if err := in(path, seen, visit); err != nil && !errors.Is(err, ErrNamespaceGone) {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// in visits the namespace at path, unless it was seen. What is no namespace is
// ErrNamespaceGone.
func in(path string, seen map[identity]bool, visit func(*conn) error) error {
	ns, err := openNamespace(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(ns.fd), &stat); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	id := identity{stat.Dev, stat.Ino}
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

// readLive adds the global addresses of the namespace that the socket is of.
func readLive(c *conn, live map[netip.Addr]bool) error {
	msgs, err := c.list(unix.RTM_GETADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC))
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, m := range msgs {
		a, err := readAddress(m)
		if err != nil {
			return err
		}
		if a.Addr().IsGlobalUnicast() {
			live[a.Addr().Unmap()] = true
		}
	}
	return nil
}
