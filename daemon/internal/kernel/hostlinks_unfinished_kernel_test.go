// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

// What a round read as half made may be whole by the time of the step.
func TestDeleteUnfinishedLink(t *testing.T) {
	needs(t, "vlan")
	host, _ := newHost(t, 1500)
	k := openKernel(t, host)
	link := vlanSpec("storage.500", 500)
	must(t, k.Apply(t.Context(), netwatcher.Change{Op: netwatcher.OpCreate, Link: link}))
	remove := netwatcher.Change{Op: netwatcher.OpDelete, Link: link, OnlyUnfinished: true}
	must(t, k.Apply(t.Context(), remove))
	if !strings.Contains(dump(t, host), "link storage.500") {
		t.Fatal("a link that was finished meanwhile was removed")
	}
	within(t, host, func(h *netlink.Handle) {
		made := find(t, h, "storage.500")
		must(t, h.LinkSetAlias(made, ""))
		must(t, h.LinkSetGroup(made, unfinishedGroup))
	})
	must(t, k.Apply(t.Context(), remove))
	if strings.Contains(dump(t, host), "link storage.500") {
		t.Error("a half-made link is still there")
	}
}
