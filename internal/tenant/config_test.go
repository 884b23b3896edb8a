// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

func TestCheckUpdate(t *testing.T) {
	t.Parallel()
	used := []network.TenantSlot{
		vlan(5), vlan(7), {Kind: network.SlotNIC, Device: "ens6", ID: 3}, {Kind: network.SlotPlugin, Device: "flannel", ID: 1},
	}
	cases := map[string]struct {
		reason, text string
		refused      []string
	}{
		"Same":    {reason: "The TenantConfig is unchanged.", text: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "1-9"}, {name: ens6}], networkIds: {flannel: f}}`},
		"Shrunk":  {reason: "The smaller ranges have all IDs in use.", text: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "5,7"}, {name: ens6}], networkIds: {flannel: g}}`},
		"Range":   {reason: "VLAN 7 is in use.", text: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "1-6"}, {name: ens6}], networkIds: {flannel: f}}`, refused: []string{"hostDevices", "vlan/ens4/7", "team-a/net2"}},
		"Device":  {reason: "ens4 is in use.", text: `{hostDevices: [{name: ens6}], networkIds: {flannel: f}}`, refused: []string{"vlan/ens4/5", "team-a/net1", "1 more"}},
		"NIC":     {reason: "ens6 is in use.", text: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "1-9"}], networkIds: {flannel: f}}`, refused: []string{"nic/ens6/3", "team-a/net3"}},
		"Kind":    {reason: "VLANs are not VXLANs.", text: `{hostDevices: [{name: ens4, vniType: vxlan, vniRange: "1-9"}, {name: ens6}], networkIds: {flannel: f}}`, refused: []string{"vlan/ens4/5"}},
		"Plugin":  {reason: "The plugin is in use.", text: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "1-9"}, {name: ens6}]}`, refused: []string{"networkIds", "type/flannel/1"}},
		"GetsIDs": {reason: "Networks of the device would need IDs.", text: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "1-9"}, {name: ens6, vniType: vlan, vniRange: "1-9"}], networkIds: {flannel: f}}`, refused: []string{"nic/ens6/3"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(t, "a", tc.text, used...)
			checkRefusal(t, tc.reason, tenant.CheckUpdate(c.TenantConfig, c.Reservations), tc.refused)
			checkRefusal(t, "Slots are in use.", tenant.CheckDelete("a", c.Reservations), []string{"team-a/net3", "nic/ens6/3", "3 more"})
			checkRefusal(t, "No slot is in use.", tenant.CheckDelete("a", tenant.NewReservations()), nil)
		})
	}
}

func TestCheckOverlap(t *testing.T) {
	t.Parallel()
	const base = `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "5-9"}, {name: ens5, vniType: vxlan, vniRange: "100-200"}, {name: ens6}], networkIds: {flannel: f}}`
	cases := map[string]struct {
		reason, text string
		refused      []string
	}{
		"Disjoint":    {reason: "The IDs and the NICs differ.", text: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "10"}, {name: ens7, vniType: vlan, vniRange: "5-9"}, {name: ens5, vniType: vxlan, vniRange: "99"}]}`},
		"VLAN":        {reason: "VLAN 9 of ens4 is in both.", text: `{hostDevices: [{name: ens7}, {name: ens4, vniType: vlan, vniRange: "9-12"}]}`, refused: []string{"hostDevices[1].vniRange", `"9-12": must not overlap 5-9 of ens4 in TenantConfig b`, "disjoint"}},
		"VXLAN":       {reason: "A VNI exists once on a node.", text: `{hostDevices: [{name: ens7, vniType: vxlan, vniRange: "150"}]}`, refused: []string{"150", "ens5", "TenantConfig b"}},
		"Selected":    {reason: "An ID exists once, whatever namespaces may use it.", text: `{namespaceSelector: {matchLabels: {a: b}}, hostDevices: [{name: ens4, vniType: vlan, vniRange: "9-12"}]}`, refused: []string{"disjoint"}},
		"NIC":         {reason: "Networks share a device without IDs.", text: `{hostDevices: [{name: ens6}]}`},
		"NetworkID":   {reason: "A namespace has two NetworkIDs for one type.", text: `{networkIds: {flannel: g}}`, refused: []string{"networkIds[flannel]", `"g"`, `"f"`, "namespaceSelector"}},
		"SameID":      {reason: "Both have the same NetworkID.", text: `{networkIds: {flannel: f}}`},
		"EmptyChoice": {reason: "An empty selector selects all.", text: `{namespaceSelector: {}, networkIds: {flannel: g}}`, refused: []string{"networkIds[flannel]"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tenant.CheckOverlap(config(t, "a", tc.text).TenantConfig, config(t, "b", base).TenantConfig)
			checkRefusal(t, tc.reason, err, tc.refused)
		})
	}
}

func TestRestoreAssignment(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, old, changed string
		slot                 network.TenantSlot
		id                   string // of networkIds
		want                 string
		refused              []string
	}{
		"LeftOut": {reason: "The manifest has no assigned attributes.", slot: vlan(5), id: "id", old: `{NetworkID: id, Options: {host_device: ens4, vlan: 5}}`,
			changed: `{NetworkID: tenants, Options: {cidr: 10.0.0.0/24}}`, want: `{NetworkID: id, Options: {host_device: ens4, vlan: 5, cidr: 10.0.0.0/24}}`},
		"Own": {reason: "Without networkIds, the NetworkID is that of the tenant.", slot: vlan(5), old: `{NetworkID: id, Options: {host_device: ens4, vlan: 5}}`,
			changed: `{NetworkID: mine}`, want: `{NetworkID: mine, Options: {host_device: ens4, vlan: 5}}`},
		"Kept": {reason: "kubectl edit sends the assigned attributes.", slot: vlan(5), id: "id", old: `{NetworkID: id, Options: {host_device: ens4, vlan: 5}}`,
			changed: `{NetworkID: id, Options: {host_device: ens4, vlan: 5}}`, want: `{NetworkID: id, Options: {host_device: ens4, vlan: 5}}`},
		"VLAN": {reason: "The VLAN is not assigned.", slot: vlan(5), old: `{Options: {host_device: ens4, vlan: 5}}`, changed: `{Options: {vlan: 6}}`,
			refused: []string{"spec.Options.vlan", "6", "vlan/ens4/5", "never changes"}},
		"Device": {reason: "The NIC is not assigned.", slot: vlan(5), old: `{Options: {host_device: ens4, vlan: 5}}`, changed: `{Options: {host_device: ens5, vxlan: 5}}`,
			refused: []string{"spec.Options.host_device", "ens5", "spec.Options.vxlan"}},
		"ToPlugin": {reason: "A plugin is not assigned.", slot: vlan(5), old: `{Options: {host_device: ens4, vlan: 5}}`, changed: `{NetworkType: bridge}`,
			refused: []string{"spec.NetworkType", "bridge", "use ipvlan"}},
		"Backend": {reason: "Patchbay's own backends may be exchanged.", slot: vlan(5), old: `{Options: {host_device: ens4, vlan: 5}}`, changed: `{NetworkType: MACVLAN}`,
			want: `{NetworkType: MACVLAN, Options: {host_device: ens4, vlan: 5}}`},
		"ToNamedType": {reason: "networkIds replaces the NetworkID after a change of the type too.", slot: vlan(5), id: "shared", old: `{NetworkID: mine, Options: {host_device: ens4, vlan: 5}}`,
			changed: `{NetworkType: macvlan, NetworkID: other}`, want: `{NetworkType: macvlan, NetworkID: shared, Options: {host_device: ens4, vlan: 5}}`},
		"PluginLost": {reason: "The namespace has lost its label, and the tenant must still not choose the file.", slot: network.TenantSlot{Kind: network.SlotPlugin, Device: "flannel", ID: 1},
			old: `{NetworkType: flannel, NetworkID: flan}`, changed: `{NetworkType: flannel, NetworkID: 10-containerd-net}`, want: `{NetworkType: flannel, NetworkID: flan}`},
		"PluginRenamed": {reason: "The assigned NetworkID stays.", slot: network.TenantSlot{Kind: network.SlotPlugin, Device: "flannel", ID: 1}, id: "new",
			old: `{NetworkType: flannel, NetworkID: flan}`, changed: `{NetworkType: flannel, NetworkID: mine}`, want: `{NetworkType: flannel, NetworkID: flan}`},
		"FromPlugin": {reason: "The assignment of a plugin has no device.", slot: network.TenantSlot{Kind: network.SlotPlugin, Device: "flannel", ID: 1}, old: `{NetworkType: flannel}`,
			changed: `{NetworkType: ipvlan}`, refused: []string{"spec.NetworkType", "use flannel"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, old := spec(t, tc.changed), spec(t, tc.old)
			err := tenant.RestoreAssignment(got, tc.slot, old, tc.id)
			checkRefusal(t, tc.reason, err, tc.refused)
			if err != nil {
				return
			}
			if diff := cmp.Diff(spec(t, tc.want), got); diff != "" {
				t.Errorf("%s\nRestoreAssignment: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestCheckIDsUnset(t *testing.T) {
	t.Parallel()
	checkRefusal(t, "No ID is set.", tenant.CheckIDsUnset(spec(t, `{Options: {host_device: ens4}}`)), nil)
	checkRefusal(t, "Both IDs are set.", tenant.CheckIDsUnset(spec(t, `{Options: {vlan: 5, vxlan: 6}}`)), []string{"spec.Options.vlan", "5", "spec.Options.vxlan", "leave it out"})
}

func spec(t *testing.T, text string) *v1.NetworkSpec {
	t.Helper()
	s := &v1.NetworkSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOrphanDetector(t *testing.T) {
	t.Parallel()
	set := func(tokens ...string) map[string]bool {
		m := map[string]bool{}
		for _, token := range tokens {
			m[token] = true
		}
		return m
	}
	var s tenant.OrphanDetector
	begin := time.Unix(0, 0)
	for _, step := range []struct {
		reason          string
		after           time.Duration
		reserved, alive map[string]bool
		want            []string
	}{
		{"both networks are in creation", 0, set("a", "b"), nil, nil},
		{"a exists", time.Second, set("a", "b"), set("a"), nil},
		{"a is deleted and released at once, and b may still be in creation", 2 * time.Second, set("a", "b"), nil, []string{"a"}},
		{"the release has failed and is returned again", 3 * time.Second, set("a", "b"), nil, []string{"a"}},
		{"b has been missing for less than a minute", 59 * time.Second, set("b"), nil, nil},
		{"b has been missing for a minute", 60 * time.Second, set("b"), nil, []string{"b"}},
		{"b is released", 61 * time.Second, set(), nil, nil},
		{"the minute of a token that is reserved again starts again", 62 * time.Second, set("b"), nil, nil},
	} {
		got := s.Orphans(begin.Add(step.after), step.reserved, step.alive)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: Orphans: -want +got\n%s", step.reason, diff)
		}
	}
	s.MarkSeen("c")
	if got := s.Orphans(begin.Add(62*time.Second), set("b", "c"), nil); !slices.Equal(got, []string{"c"}) {
		t.Errorf("c has existed and does not exist: Orphans: got %v", got)
	}
	if wait, ok := s.NextCheck(begin.Add(70 * time.Second)); !ok || wait != 52*time.Second {
		t.Errorf("NextCheck: got %v, %v, want 52s", wait, ok)
	}
}
