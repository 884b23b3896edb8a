// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// addressed creates a namespace with a bridge that has these addresses.
func addressed(t *testing.T, addresses ...string) string {
	t.Helper()
	path := newNamespace(t)
	within(t, path, func(h *netlink.Handle) {
		must(t, h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth0", TxQLen: -1}}))
		for _, text := range addresses {
			a, err := netlink.ParseAddr(text)
			must(t, err)
			must(t, h.AddrAdd(find(t, h, "eth0"), a))
		}
	})
	return path
}

// directoryOf creates a directory with links to the namespaces, and with files that are not
// namespaces.
func directoryOf(t *testing.T, paths ...string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "deleted"), nil, 0o600))
	must(t, os.Mkdir(filepath.Join(dir, "directory"), 0o700))
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600)) // an open would block for ever
	must(t, os.Symlink(filepath.Join(dir, "missing"), filepath.Join(dir, "dangling")))
	for i, path := range paths {
		must(t, os.Symlink(path, filepath.Join(dir, string(rune('a'+i)))))
	}
	return dir
}

func TestLiveAddresses(t *testing.T) {
	one := addressed(t, "10.0.0.5/24", "fd00::5/64", "fe80::7/64", "127.0.0.2/8")
	two := addressed(t, "10.0.0.6/32")
	live, visited := map[netip.Addr]bool{}, 0
	sandboxes := &Sandboxes{dirs: []string{directoryOf(t, one, two), directoryOf(t, two), "/missing"}}
	err := sandboxes.forEach(t.Context(), func(c *conn) error {
		visited++
		return addLiveAddresses(c, live)
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[netip.Addr]bool{
		netip.MustParseAddr("10.0.0.5"): true, netip.MustParseAddr("10.0.0.6"): true, netip.MustParseAddr("fd00::5"): true,
	}
	if diff := cmp.Diff(want, live, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("global addresses of two namespaces (-want +got):\n%s", diff)
	}
	if visited != 2 {
		t.Errorf("%d namespaces were read, want each of 2 once", visited)
	}
}

// The host's own addresses are live, too. No file descriptor stays open.
func TestLiveAddressesOfTheHost(t *testing.T) {
	k := openKernel(t, addressed(t, "10.0.0.7/24"))
	before := descriptors(t)
	live, err := k.Sandboxes().LiveAddresses(t.Context())
	if err != nil || !live[netip.MustParseAddr("10.0.0.7")] {
		t.Errorf("got %v, %v, want the host's address among them", live, err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// A partial result is an error: the caller releases the addresses that are not in it.
func TestLiveAddressesStopWithTheCaller(t *testing.T) {
	dir := directoryOf(t, addressed(t, "10.0.0.5/24"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sandboxes := &Sandboxes{dirs: []string{dir}}
	err := sandboxes.forEach(ctx, func(c *conn) error { return addLiveAddresses(c, map[netip.Addr]bool{}) })
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got error %v, want the caller's error and the namespace's path", err)
	}
}
