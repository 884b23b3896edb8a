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
	wants := func(specs ...Spec) *Plan {
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
		"AsWanted":        {reason: "nothing to do", plan: wants(storage, backend), state: host(ours(storage), ours(backend))},
		"Missing":         {reason: "made", plan: wants(storage), state: host(), want: []Change{{Op: OpCreate, Link: storage}, untag(storage)}},
		"NoLongerWanted":  {reason: "removed", plan: wants(), state: host(ours(storage)), want: []Change{{Op: OpDelete, Link: storage}}},
		"UsedThough":      {reason: "never under Pods", plan: wants(), state: host(ours(storage)), used: true},
		"Foreign":         {reason: "nothing without our mark is touched", plan: wants(), state: host(foreign(storage))},
		"HalfMade":        {reason: "no Pod can be on it", plan: wants(storage), used: true, state: host(ObservedLink{Spec: storage, Managed: true, Unfinished: true}), want: []Change{{Op: OpDelete, Link: storage, OnlyUnfinished: true}, {Op: OpCreate, Link: storage}, untag(storage)}},
		"Down":            {reason: "set down by hand", plan: wants(storage), state: host(ObservedLink{Spec: storage, Managed: true, HostUnreachable: true, TagsFiltered: true}), want: []Change{{Op: OpUpdate, Link: storage}}},
		"Unsealed":        {reason: "got an address by hand", plan: wants(storage), used: true, state: host(ObservedLink{Spec: storage, Managed: true, Up: true, TagsFiltered: true}), want: []Change{{Op: OpUpdate, Link: storage}}},
		"MTULower":        {reason: "in place", plan: wants(lower), state: host(ours(storage)), want: []Change{{Op: OpUpdate, Link: lower}}},
		"MTULowerUsed":    {reason: "would cut frames that Pods send", plan: wants(lower), state: host(ours(storage)), used: true},
		"MTUHigherUsed":   {reason: "harms nobody", plan: wants(storage), state: host(ours(lower)), used: true, want: []Change{{Op: OpUpdate, Link: storage}}},
		"Renamed":         {reason: "the oldest network is another now", plan: wants(renamed), state: host(ours(storage)), want: []Change{{Op: OpDelete, Link: storage}, {Op: OpCreate, Link: renamed}, untag(renamed)}},
		"RenamedUsed":     {reason: "keeps its name while Pods are on it", plan: wants(renamed), state: host(ours(storage)), used: true},
		"RenamedUsedDown": {reason: "repaired under the name that it has", plan: wants(renamed), used: true, state: host(ObservedLink{Spec: storage, Managed: true, HostUnreachable: true, TagsFiltered: true}), want: []Change{{Op: OpUpdate, Link: storage}}},
		"VTEPMoved":       {reason: "the NIC's first address is another: changed in place, Pods or not", plan: wants(backend), used: true, state: host(ours(moved)), want: []Change{{Op: OpUpdate, Link: backend}}},
		"FamilyMoved":     {reason: "the kernel does not change that in place", plan: wants(backend), state: host(ours(other)), want: []Change{{Op: OpDelete, Link: other}, {Op: OpCreate, Link: backend}, untag(backend)}},
		"FamilyMovedUsed": {reason: "never under Pods", plan: wants(backend), used: true, state: host(ours(other))},
		"DeviceMovedUsed": {reason: "it is repaired where it is", plan: wants(elsewhere), used: true, state: host(ObservedLink{Spec: backend, Managed: true, HostUnreachable: true, TagsFiltered: true}), want: []Change{{Op: OpUpdate, Link: where}}},
		"Peers":           {reason: "one node left, one came", plan: wants(fewer), state: host(ours(backend)), used: true, want: []Change{{Op: OpUpdatePeers, Link: fewer, Add: ipList("192.0.2.9"), Drop: ipList("192.0.2.2")}}},
		"Stranger":        {reason: "learned before the packet filter was there, or from a node that left", plan: wants(backend), used: true, state: host(learned(backend, "192.0.2.3", "192.0.2.66")), want: []Change{{Op: OpFlushLearned, Link: backend, Drop: ipList("192.0.2.66")}}},
		"StrangerUnknown": {reason: "who is a stranger is not known yet", plan: wants(unknown), state: host(learned(backend, "192.0.2.66"))},
		"PeersUnknown":    {reason: "the API server has not answered yet: entries stay", plan: wants(unknown), state: host(ours(backend))},
		"NICDown":         {reason: "a link is as good as its NIC", plan: &Plan{RequiredNICs: []string{"ens4", "ens6"}}, state: host(), want: []Change{{Op: OpSetUp, Link: Spec{Device: "ens6"}}}},
		"Impossible":      {reason: "what is there is left alone", plan: &Plan{Links: []DesiredLink{{Spec: storage, Err: ErrNoNIC}}}, state: host(ours(storage))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Diff(tc.plan, tc.state, func(*ObservedLink) bool { return tc.used })
			if diff := cmp.Diff(tc.want, got, opts); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// untag is the step that closes a link.
func untag(s Spec) Change {
	return Change{Op: OpFilterTags, Link: Spec{Identity: s.Identity, Name: s.Name, Device: s.Device}}
}

// Tags pass where a network wants that, and nowhere else; nothing of ours stays on a NIC that
// is no longer used, unless a Pod is on it.
func TestDiffOfTags(t *testing.T) {
	t.Parallel()
	storage := vlanLink("storage.500", "ens4", 500, 1500)
	open, renamed := ours(storage), ours(vlanLink("first.500", "ens4", 500, 1500))
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
		"NIC":      {reason: "its VLANs are other networks", nets: []*network.Network{flat}, state: host(), want: []Change{untag(nic)}},
		"Closed":   {reason: "nothing to do", nets: []*network.Network{flat}, state: closed},
		"Trunk":    {reason: "the network wants tags", nets: []*network.Network{trunk}, state: host()},
		"TrunkNow": {reason: "the network wants tags now", nets: []*network.Network{trunk}, state: closed, used: true, want: []Change{{Op: OpAllowTags, Link: nic}}},
		"Delegate": {reason: "another plugin's slaves are its own matter", nets: []*network.Network{newNet(1, "vm", kind("bridge"))}, state: host()},
		"Beside":   {reason: "a slave of ours is on the NIC too", nets: []*network.Network{newNet(1, "vm", kind("bridge")), newNet(2, "flat")}, state: host(), want: []Change{untag(nic)}},
		"RefusedBeside": {
			reason: "Pods of a network that does not fit any more are on the NIC beside another plugin's", state: closed, used: true,
			nets: []*network.Network{newNet(1, "vm", kind("bridge")), newNet(2, "flat", mtu(9000))},
		},
		"RefusedOpen": {
			reason: "the same, and somebody else has removed the filter", state: host(), used: true, want: []Change{untag(nic)},
			nets: []*network.Network{newNet(1, "vm", kind("bridge")), newNet(2, "flat", mtu(9000))},
		},
		"DelegatesOnly": {
			reason: "the last Pod of ours has left", state: closed, want: []Change{{Op: OpAllowTags, Link: nic}},
			nets: []*network.Network{newNet(1, "vm", kind("bridge"))},
		},
		"Unused":       {reason: "nothing of ours stays", state: closed, want: []Change{{Op: OpAllowTags, Link: nic}}},
		"UnusedByAPod": {reason: "its network was refused, or is not known yet", state: closed, used: true},
		"VLAN":         {reason: "a switch takes the outer tag off where it is the port's own VLAN", nets: []*network.Network{newNet(1, "storage", vlan(500))}, state: host(open), want: []Change{untag(storage)}},
		"OtherName":    {reason: "by the name that the link has", nets: []*network.Network{newNet(1, "storage", vlan(500))}, state: host(renamed), used: true, want: []Change{untag(renamed.Spec)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Diff(Desired(tc.nets, tc.state, nil), tc.state, func(*ObservedLink) bool { return tc.used })
			if diff := cmp.Diff(tc.want, got, opts); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// learned is a link with entries that lead to the VTEPs.
func learned(s Spec, vteps ...string) ObservedLink {
	f := ours(s)
	f.Learned = ipList(vteps...)
	return f
}
