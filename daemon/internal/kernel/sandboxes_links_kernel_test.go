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

// LinksInUse finds a link with another on top in a sandbox and in the host's namespace, and
// the port of a bridge. A veth names the index of its other end, and is not on top of it.
func TestLinksInUse(t *testing.T) {
	needs(t, "vlan")
	host, _ := newHost(t, 1500)
	k, pod := openKernel(t, host), newNamespace(t)
	for i, name := range []string{"free.1", "inpod.2", "onhost.3", "bridged.4"} {
		if err := k.Links().Apply(t.Context(), netwatcher.Change{Op: netwatcher.OpCreate, Link: vlanSpec(name, i+1)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := k.Slaves().Attach(context.Background(), withDefaults(Slave{Parent: "inpod.2"}, pod)); err != nil {
		t.Fatal(err)
	}
	within(t, host, func(h *netlink.Handle) {
		attrs := netlink.LinkAttrs{Name: "other", ParentIndex: find(t, h, "onhost.3").Attrs().Index, TxQLen: -1}
		must(t, h.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}))
		addBridge("br0")(t, h)
		must(t, h.LinkSetMaster(find(t, h, "bridged.4"), find(t, h, "br0")))
	})
	sandboxes := &Sandboxes{host: k.conn, dirs: []string{directoryOf(t, pod)}}
	used, err := sandboxes.LinksInUse(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"bridged.4", "ens4", "inpod.2", "onhost.3"}, slices.Sorted(maps.Keys(used))); diff != "" {
		t.Errorf("links in use (-want +got):\n%s", diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sandboxes.LinksInUse(ctx); err == nil {
		t.Error("LinksInUse did not read all sandboxes and returned no error")
	}
}

// Another program's VXLAN without an ID of its own occupies the port: the error explains it,
// and nothing is left behind.
func TestExplainVXLANUpError(t *testing.T) {
	host := newTrunk(t, 1, true)[0]
	within(t, host, func(h *netlink.Handle) {
		must(t, h.LinkAdd(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "vxlan_sys", TxQLen: -1}, FlowBased: true, Port: vxlanPort}))
		quiet(t, "vxlan_sys")
		must(t, h.LinkSetUp(find(t, h, "vxlan_sys")))
	})
	before := dump(t, host)
	link := vxlanSpec("vx_backend", 700, vtep(0).String())
	err := openKernel(t, host).Links().Apply(t.Context(), netwatcher.Change{Op: netwatcher.OpCreate, Link: link})
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
