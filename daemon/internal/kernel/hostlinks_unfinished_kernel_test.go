// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

// OnlyUnfinished deletes no link that was finished after it was read.
func TestDeleteUnfinishedLink(t *testing.T) {
	needs(t, "vlan")
	host, _ := newHost(t, 1500)
	k := openKernel(t, host)
	link := vlanSpec("storage.500", 500)
	must(t, k.Links().Apply(t.Context(), netwatcher.Change{Op: netwatcher.OpCreate, Link: link}))
	deletion := netwatcher.Change{Op: netwatcher.OpDelete, Link: link, OnlyUnfinished: true}
	must(t, k.Links().Apply(t.Context(), deletion))
	if !strings.Contains(dump(t, host), "link storage.500") {
		t.Fatal("a finished link was deleted")
	}
	within(t, host, func(h *netlink.Handle) {
		link := find(t, h, "storage.500")
		must(t, h.LinkSetAlias(link, ""))
		must(t, h.LinkSetGroup(link, unfinishedGroup))
	})
	must(t, k.Links().Apply(t.Context(), deletion))
	if strings.Contains(dump(t, host), "link storage.500") {
		t.Error("an unfinished link was not deleted")
	}
}
