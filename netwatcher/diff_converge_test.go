// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// For any links and networks, the second reconciliation changes nothing. Unmanaged links and links
// with Pods stay (the fakeNode panics if a link with Pods is deleted).
func TestConverges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &fakeNode{state: *host(drawLinks(t)...), used: map[network.Link]bool{}, err: map[string]error{}}
		for _, f := range w.state.Links {
			if f.Managed && rapid.Bool().Draw(t, "used") {
				w.used[f.Identity] = true
			}
		}
		before := slices.Clone(w.state.Links)
		w.nets = drawNetworks(t)
		r := New(Config{Node: "self", Kernel: w, Firewall: fakeFirewall{w}, SourceGuard: fakeSourceGuard{w}, KubeClient: w, Pods: w, Log: testLog(nil)})
		// A link whose name is in use by a link with Pods is an error and not a change.
		_ = r.Reconcile(t.Context())
		after := slices.Clone(w.state.Links)
		_ = r.Reconcile(t.Context())
		if diff := cmp.Diff(after, w.state.Links, opts); diff != "" {
			t.Fatalf("the second reconciliation changed something: -first +second\n%s", diff)
		}
		for _, f := range before {
			if f.Managed && (f.Unfinished || !w.used[f.Identity]) {
				continue
			}
			i := slices.IndexFunc(after, func(a ObservedLink) bool { return a.Name == f.Name })
			if i < 0 || after[i].Identity != f.Identity || after[i].Managed != f.Managed {
				t.Fatalf("link %+v was lost", f)
			}
		}
	})
}

func drawNetworks(t *rapid.T) []*network.Network {
	var nets []*network.Network
	for i := range rapid.IntRange(0, 8).Draw(t, "networks") {
		n := newNet(rapid.IntRange(1, 3).Draw(t, "age"), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id"), named(fmt.Sprintf("n%d", i)))
		n.Device = rapid.SampledFrom([]string{"ens4", "ens5", "ens6", "ens7", "ens9"}).Draw(t, "device")
		n.Type = rapid.SampledFrom([]string{"ipvlan", "macvlan", "bridge"}).Draw(t, "type")
		n.MTU = rapid.SampledFrom([]int{0, 1400, 1500, 9000}).Draw(t, "mtu")
		switch number := rapid.IntRange(1, 3).Draw(t, "number"); rapid.IntRange(0, 2).Draw(t, "wire") {
		case 1:
			n.VLAN = number
		case 2:
			n.VXLAN = number
		}
		nets = append(nets, n)
	}
	return nets
}

// drawLinks draws links with unique names and identities.
func drawLinks(t *rapid.T) []ObservedLink {
	var links []ObservedLink
	for range rapid.IntRange(0, 6).Draw(t, "links") {
		number := rapid.IntRange(1, 3).Draw(t, "number")
		id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
		dev := rapid.SampledFrom([]string{"ens4", "ens5"}).Draw(t, "device")
		spec := vlanLink(fmt.Sprintf("%s.%d", id, number), dev, number, 1500)
		if rapid.Bool().Draw(t, "vxlan") {
			spec = vxlanLink("vx_"+id, dev, number, 1450, "192.0.2.1")
		}
		f := ObservedLink{Spec: spec, Up: rapid.Bool().Draw(t, "up"), HostUnreachable: rapid.Bool().Draw(t, "unreachable"), Managed: rapid.Bool().Draw(t, "managed")}
		f.Unfinished = f.Managed && rapid.Bool().Draw(t, "unfinished")
		if !slices.ContainsFunc(links, func(l ObservedLink) bool { return l.Name == f.Name || l.Identity == f.Identity }) {
			links = append(links, f)
		}
	}
	return links
}
