// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/internal/network"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	storage := vlanLink("storage.500", "ens4", 500, 1500)
	backend := vxlanLink("vx_backend", "ens4", 700, 1450, "192.0.2.1", "192.0.2.2", "192.0.2.3")
	with := func(s Spec, change func(*Spec)) Spec { change(&s); return s }
	planOf := func(specs ...Spec) *Plan {
		p := &Plan{RequiredNICs: []string{"ens4"}}
		for _, s := range specs {
			p.Links = append(p.Links, DesiredLink{Spec: s})
		}
		return p
	}
	lower := with(storage, func(s *Spec) { s.MTU = 1400 })
	renamed := with(storage, func(s *Spec) { s.Name = "first.500" })
	moved := with(backend, func(s *Spec) { s.Local = ipList("192.0.2.77")[0] })
	other := with(backend, func(s *Spec) { s.Local, s.Peers = ipList("2001:db8::1")[0], nil })
	elsewhere := with(backend, func(s *Spec) { s.Device, s.Local = "ens5", ipList("192.0.2.44")[0] })
	where := with(backend, func(s *Spec) { s.Peers = nil })
	fewer := with(backend, func(s *Spec) { s.Peers = ipList("192.0.2.3", "192.0.2.9") })
	unknown := with(backend, func(s *Spec) { s.Peers = nil })

	cases := map[string]struct {
		reason string
		plan   *Plan
		state  *State
		used   bool
		want   []Change
	}{
		"AsPlanned":       {reason: "The links are as planned.", plan: planOf(storage, backend), state: host(managed(storage), managed(backend))},
		"Missing":         {reason: "The link is created.", plan: planOf(storage), state: host(), want: []Change{{Op: OpCreate, Link: storage}, filterTags(storage)}},
		"NotNeeded":       {reason: "The link is deleted.", plan: planOf(), state: host(managed(storage)), want: []Change{{Op: OpDelete, Link: storage}}},
		"NotNeededUsed":   {reason: "A link with Pods is not deleted.", plan: planOf(), state: host(managed(storage)), used: true},
		"Unmanaged":       {reason: "A link that Patchbay does not manage is not changed.", plan: planOf(), state: host(unmanaged(storage))},
		"Unfinished":      {reason: "No Pod can be on an unfinished link.", plan: planOf(storage), used: true, state: host(ObservedLink{Spec: storage, Managed: true, Unfinished: true}), want: []Change{{Op: OpDelete, Link: storage, OnlyUnfinished: true}, {Op: OpCreate, Link: storage}, filterTags(storage)}},
		"Down":            {reason: "A user set the link down.", plan: planOf(storage), state: host(ObservedLink{Spec: storage, Managed: true, HostUnreachable: true, TagsFiltered: true}), want: []Change{{Op: OpUpdate, Link: storage}}},
		"Addresses":       {reason: "A user added an address.", plan: planOf(storage), used: true, state: host(ObservedLink{Spec: storage, Managed: true, Up: true, TagsFiltered: true}), want: []Change{{Op: OpUpdate, Link: storage}}},
		"MTULower":        {reason: "The MTU is changed in place.", plan: planOf(lower), state: host(managed(storage)), want: []Change{{Op: OpUpdate, Link: lower}}},
		"MTULowerUsed":    {reason: "A smaller MTU would drop frames of Pods.", plan: planOf(lower), state: host(managed(storage)), used: true},
		"MTUHigherUsed":   {reason: "A larger MTU does not affect Pods.", plan: planOf(storage), state: host(managed(lower)), used: true, want: []Change{{Op: OpUpdate, Link: storage}}},
		"Renamed":         {reason: "Another network is the oldest now.", plan: planOf(renamed), state: host(managed(storage)), want: []Change{{Op: OpDelete, Link: storage}, {Op: OpCreate, Link: renamed}, filterTags(renamed)}},
		"RenamedUsed":     {reason: "The link keeps its name while Pods are on it.", plan: planOf(renamed), state: host(managed(storage)), used: true},
		"RenamedUsedDown": {reason: "The link is repaired under its present name.", plan: planOf(renamed), used: true, state: host(ObservedLink{Spec: storage, Managed: true, HostUnreachable: true, TagsFiltered: true}), want: []Change{{Op: OpUpdate, Link: storage}}},
		"VTEPMoved":       {reason: "The NIC's first address changed: the VTEP is changed in place, also with Pods.", plan: planOf(backend), used: true, state: host(managed(moved)), want: []Change{{Op: OpUpdate, Link: backend}}},
		"FamilyMoved":     {reason: "The kernel cannot change the family in place.", plan: planOf(backend), state: host(managed(other)), want: []Change{{Op: OpDelete, Link: other}, {Op: OpCreate, Link: backend}, filterTags(backend)}},
		"FamilyMovedUsed": {reason: "A link with Pods is not deleted.", plan: planOf(backend), used: true, state: host(managed(other))},
		"DeviceMovedUsed": {reason: "The link is repaired on its present NIC.", plan: planOf(elsewhere), used: true, state: host(ObservedLink{Spec: backend, Managed: true, HostUnreachable: true, TagsFiltered: true}), want: []Change{{Op: OpUpdate, Link: where}}},
		"Peers":           {reason: "One node left and one joined.", plan: planOf(fewer), state: host(managed(backend)), used: true, want: []Change{{Op: OpUpdatePeers, Link: fewer, Add: ipList("192.0.2.9"), Drop: ipList("192.0.2.2")}}},
		"Learned":         {reason: "An entry was learned before the packet filter existed, or from a node that left.", plan: planOf(backend), used: true, state: host(learned(backend, "192.0.2.3", "192.0.2.66")), want: []Change{{Op: OpFlushLearned, Link: backend, Drop: ipList("192.0.2.66")}}},
		"LearnedUnknown":  {reason: "Entries stay while the peers are not known.", plan: planOf(unknown), state: host(learned(backend, "192.0.2.66"))},
		"PeersUnknown":    {reason: "Entries stay until the API server has answered.", plan: planOf(unknown), state: host(managed(backend))},
		"NICDown":         {reason: "A required NIC is set up.", plan: &Plan{RequiredNICs: []string{"ens4", "ens6"}}, state: host(), want: []Change{{Op: OpSetUp, Link: Spec{Device: "ens6"}}}},
		"Impossible":      {reason: "The existing link of a failed plan stays.", plan: &Plan{Links: []DesiredLink{{Spec: storage, Err: errNoNIC}}}, state: host(managed(storage))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Diff(tc.plan, tc.state, func(*ObservedLink) bool { return tc.used })
			if diff := cmp.Diff(tc.want, got, opts); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// filterTags is the change that adds the tag filter to a link.
func filterTags(s Spec) Change {
	return Change{Op: OpFilterTags, Link: Spec{Identity: s.Identity, Name: s.Name, Device: s.Device}}
}

// Tags pass only on links of trunks. The tag filter of a NIC is removed when no network and no Pod
// uses the NIC.
func TestDiffOfTags(t *testing.T) {
	t.Parallel()
	storage := vlanLink("storage.500", "ens4", 500, 1500)
	open, renamed := managed(storage), managed(vlanLink("first.500", "ens4", 500, 1500))
	open.TagsFiltered, renamed.TagsFiltered = false, false
	nic := Spec{Identity: network.Link{Device: "ens4"}, Name: "ens4", Device: "ens4"}
	flat, trunk := newNet(1, "flat"), newNet(1, "vnf", func(n *network.Network) { n.Trunk = true })
	closed := host()
	closed.NICs[0].TagsFiltered = true
	cases := map[string]struct {
		reason string
		nets   []*network.Network
		state  *State
		used   bool
		want   []Change
	}{
		"NIC":      {reason: "The NIC's VLANs belong to other networks.", nets: []*network.Network{flat}, state: host(), want: []Change{filterTags(nic)}},
		"Filtered": {reason: "The filter exists.", nets: []*network.Network{flat}, state: closed},
		"Trunk":    {reason: "The network is a trunk.", nets: []*network.Network{trunk}, state: host()},
		"TrunkNow": {reason: "The network became a trunk.", nets: []*network.Network{trunk}, state: closed, used: true, want: []Change{{Op: OpAllowTags, Link: nic}}},
		"Delegate": {reason: "Another plugin manages its own slaves.", nets: []*network.Network{newNet(1, "vm", kind("bridge"))}, state: host()},
		"Beside":   {reason: "A slave of Patchbay is on the NIC, too.", nets: []*network.Network{newNet(1, "vm", kind("bridge")), newNet(2, "flat")}, state: host(), want: []Change{filterTags(nic)}},
		"RefusedBeside": {
			reason: "Pods of a refused network are on the NIC beside another plugin's.", state: closed, used: true,
			nets: []*network.Network{newNet(1, "vm", kind("bridge")), newNet(2, "flat", mtu(9000))},
		},
		"RefusedOpen": {
			reason: "A user deleted the filter while Pods of a refused network are on the NIC.", state: host(), used: true, want: []Change{filterTags(nic)},
			nets: []*network.Network{newNet(1, "vm", kind("bridge")), newNet(2, "flat", mtu(9000))},
		},
		"DelegatesOnly": {
			reason: "The last Pod of Patchbay has left.", state: closed, want: []Change{{Op: OpAllowTags, Link: nic}},
			nets: []*network.Network{newNet(1, "vm", kind("bridge"))},
		},
		"Unused":     {reason: "No network uses the NIC.", state: closed, want: []Change{{Op: OpAllowTags, Link: nic}}},
		"UsedByPods": {reason: "The Pods' network was refused, or is not known yet.", state: closed, used: true},
		"VLAN":       {reason: "A switch removes the outer tag if it is the port's own VLAN.", nets: []*network.Network{newNet(1, "storage", vlan(500))}, state: host(open), want: []Change{filterTags(storage)}},
		"OtherName":  {reason: "The change uses the link's present name.", nets: []*network.Network{newNet(1, "storage", vlan(500))}, state: host(renamed), used: true, want: []Change{filterTags(renamed.Spec)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Diff(Desired(tc.nets, tc.state, nil), tc.state, func(*ObservedLink) bool { return tc.used })
			if diff := cmp.Diff(tc.want, got, opts); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// learned returns a managed link with entries that were learned from the VTEPs.
func learned(s Spec, vteps ...string) ObservedLink {
	f := managed(s)
	f.Learned = ipList(vteps...)
	return f
}
