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

// addressed makes a namespace with a bridge that has these addresses.
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

// folderOf links namespaces into one folder, with things that are none.
func folderOf(t *testing.T, paths ...string) string {
	t.Helper()
	folder := t.TempDir()
	must(t, os.WriteFile(filepath.Join(folder, "deleted"), nil, 0o600))
	must(t, os.Mkdir(filepath.Join(folder, "folder"), 0o700))
	must(t, unix.Mkfifo(filepath.Join(folder, "pipe"), 0o600)) // to open it would wait for ever
	must(t, os.Symlink(filepath.Join(folder, "nowhere"), filepath.Join(folder, "dangling")))
	for i, path := range paths {
		must(t, os.Symlink(path, filepath.Join(folder, string(rune('a'+i)))))
	}
	return folder
}

func TestLiveAddresses(t *testing.T) {
	one := addressed(t, "10.0.0.5/24", "fd00::5/64", "fe80::7/64", "127.0.0.2/8")
	two := addressed(t, "10.0.0.6/32")
	live, seen := map[netip.Addr]bool{}, map[namespaceID]bool{}
	for _, folder := range []string{folderOf(t, one, two), folderOf(t, two), "/nowhere"} {
		if err := addLiveAddressesBelow(t.Context(), folder, seen, live); err != nil {
			t.Fatal(err)
		}
	}
	want := map[netip.Addr]bool{
		netip.MustParseAddr("10.0.0.5"): true, netip.MustParseAddr("10.0.0.6"): true, netip.MustParseAddr("fd00::5"): true,
	}
	if diff := cmp.Diff(want, live, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("global addresses of two namespaces (-want +got):\n%s", diff)
	}
	if len(seen) != 2 {
		t.Errorf("%d namespaces were read, want each of 2 once", len(seen))
	}
}

// The host's own addresses are live, too, and no descriptor is left open.
func TestLiveAddressesOfTheHost(t *testing.T) {
	k := openKernel(t, addressed(t, "10.0.0.7/24"))
	before := descriptors(t)
	live, err := k.LiveAddresses(t.Context())
	if err != nil || !live[netip.MustParseAddr("10.0.0.7")] {
		t.Errorf("got %v, %v, want the host's address among them", live, err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// Who has to know all of them must not take some for all.
func TestLiveAddressesStopWithTheCaller(t *testing.T) {
	folder := folderOf(t, addressed(t, "10.0.0.5/24"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := addLiveAddressesBelow(ctx, folder, map[namespaceID]bool{}, map[netip.Addr]bool{})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), folder) {
		t.Errorf("got error %v, want the caller's and the namespace's path", err)
	}
}
