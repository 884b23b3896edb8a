// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

// What is on a link is found wherever it is: in a sandbox, in the host's namespace,
// under a bridge. The ends of cables say the index of their other end, and are on
// nothing.
func TestSlaves(t *testing.T) {
	needs(t, "vlan")
	host, _ := newHost(t, 1500)
	k, pod := openKernel(t, host), newNamespace(t)
	for i, name := range []string{"free.1", "inpod.2", "onhost.3", "bridged.4"} {
		if err := k.Apply(t.Context(), netwatcher.Change{Op: netwatcher.OpCreate, Link: vlanSpec(name, i+1)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := k.Attach(context.Background(), withDefaults(Slave{Parent: "inpod.2"}, pod)); err != nil {
		t.Fatal(err)
	}
	within(t, host, func(h *netlink.Handle) {
		attrs := netlink.LinkAttrs{Name: "other", ParentIndex: find(t, h, "onhost.3").Attrs().Index, TxQLen: -1}
		must(t, h.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}))
		addBridge("br0")(t, h)
		must(t, h.LinkSetMaster(find(t, h, "bridged.4"), find(t, h, "br0")))
	})
	used, err := k.linksInUse(t.Context(), []string{folderOf(t, pod)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"bridged.4", "ens4", "inpod.2", "onhost.3"}, slices.Sorted(maps.Keys(used))); diff != "" {
		t.Errorf("links that something is on (-want +got):\n%s", diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.linksInUse(ctx, []string{folderOf(t, pod)}); err == nil {
		t.Error("some sandboxes were not looked into, and nobody was told")
	}
}

// Another program's VXLAN without an ID of its own has the port: the error says so,
// and leaves nothing.
func TestExplainVXLANUpError(t *testing.T) {
	host := newTrunk(t, 1, true)[0]
	within(t, host, func(h *netlink.Handle) {
		must(t, h.LinkAdd(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "vxlan_sys", TxQLen: -1}, FlowBased: true, Port: vxlanPort}))
		quiet(t, "vxlan_sys")
		must(t, h.LinkSetUp(find(t, h, "vxlan_sys")))
	})
	before := dump(t, host)
	link := vxlanSpec("vx_backend", 700, vtep(0).String())
	err := openKernel(t, host).Apply(t.Context(), netwatcher.Change{Op: netwatcher.OpCreate, Link: link})
	if err == nil || !strings.Contains(err.Error(), "UDP port 4789 is another program's") {
		t.Errorf("got %v, want the cause", err)
	}
	if diff := cmp.Diff(before, dump(t, host)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	if r, err := OSRelease(); err != nil || r == "" || strings.ContainsRune(r, 0) {
		t.Errorf("got %q, %v", r, err)
	}
}
