// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

// config returns a TenantConfig from YAML, with slots in use.
func config(tb testing.TB, name, text string, used ...network.TenantSlot) tenant.Config {
	tb.Helper()
	o := &v1.TenantConfig{}
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		tb.Fatal(err)
	}
	o.Name = name
	t, err := network.FromTenantConfig(o)
	if err != nil {
		tb.Fatal(err)
	}
	b := tenant.NewReservations()
	reserve(tb, b, used...)
	return tenant.Config{TenantConfig: t, Reservations: b}
}

func TestChooseSlot(t *testing.T) {
	t.Parallel()
	const (
		two       = `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "9,5-6"}, {name: ens5, vniType: vxlan, vniRange: "100-200"}, {name: ens6}]}`
		pools     = `{hostDevices: [{name: ens4}, {name: a.b/c, vniType: vlan, vniRange: "7"}]}`
		vxlanPool = `{hostDevices: [{name: a.b/c, vniType: vxlan, vniRange: "7"}, {name: ens4, vniType: vlan, vniRange: "1-9"}]}`
		plugin    = `{networkIds: {flannel: flan, ipvlan: shared}, hostDevices: [{name: ens4, vniType: vlan, vniRange: "1-9"}]}`
		blue      = `{namespaceSelector: {matchLabels: {team: blue}}, networkIds: {flannel: blue}, hostDevices: [{name: ens7}]}`
		bluePool  = `{namespaceSelector: {matchLabels: {team: blue}}, hostDevices: [{name: a.b/blue, vniType: vlan, vniRange: "8"}]}`
		blue2     = `{namespaceSelector: {matchLabels: {team: blue}}, networkIds: {flannel: azure}}`
	)
	cases := map[string]struct {
		reason  string
		configs []tenant.Config
		request tenant.NetworkRequest
		taken   map[network.TenantSlot]bool
		want    string // slot, NetworkID
		refused []string
	}{
		"Lowest":     {reason: "The lowest ID of all ranges is chosen, whatever their order.", configs: []tenant.Config{config(t, "a", two)}, want: "vlan/ens4/5"},
		"FewestUsed": {reason: "The device with fewer IDs in use is chosen.", configs: []tenant.Config{config(t, "a", two, vlan(5))}, want: "vxlan/ens5/100"},
		"Next": {reason: "The lowest free ID is chosen.", configs: []tenant.Config{config(t, "a", two, vlan(5), vlan(6))},
			request: tenant.NetworkRequest{Device: "ens4"}, want: "vlan/ens4/9"},
		"Taken": {reason: "A ClusterNetwork uses VLAN 5 without a reservation.", configs: []tenant.Config{config(t, "a", two)},
			taken: map[network.TenantSlot]bool{vlan(5): true}, want: "vlan/ens4/6"},
		"Asked": {reason: "The tenant may request one of the devices.", configs: []tenant.Config{config(t, "a", two)},
			request: tenant.NetworkRequest{Device: "ens6"}, want: "nic/ens6/1"},
		"FullThenOther": {reason: "Another device has free IDs.", want: "vxlan/ens5/100",
			configs: []tenant.Config{config(t, "a", two, vlan(5), vlan(6), vlan(9))}},
		"Full": {reason: "A shared device does not replace an ID.", request: tenant.NetworkRequest{Device: "ens4"},
			configs: []tenant.Config{config(t, "a", two, vlan(5), vlan(6), vlan(9))}, refused: []string{"every ID", "vlan 9,5-6 of ens4", "3 reserved"}},
		"Unknown": {reason: "The TenantConfig does not have the device.", configs: []tenant.Config{config(t, "a", two)},
			request: tenant.NetworkRequest{Device: "ens9"}, refused: []string{"spec.Options.host_device", "ens9", "use ens4, ens5, ens6"}},
		"PoolAsDevice": {reason: "A device pool is not a NIC.", configs: []tenant.Config{config(t, "a", pools)},
			request: tenant.NetworkRequest{Device: "a.b/c"}, refused: []string{"spec.Options.host_device", "use ens4"}},
		"SRIOV": {reason: "A virtual function can have a VLAN and no VXLAN.", configs: []tenant.Config{config(t, "a", pools)},
			request: tenant.NetworkRequest{Type: "sriov"}, want: "vlan/a.b/c/7"},
		"SRIOVWithout": {reason: "SR-IOV needs a device pool.", configs: []tenant.Config{config(t, "a", two)},
			request: tenant.NetworkRequest{Type: "sriov"}, refused: []string{"spec.NetworkType", "device pool"}},
		"UnknownPool": {reason: "The TenantConfig does not have the pool.", configs: []tenant.Config{config(t, "a", pools)},
			request: tenant.NetworkRequest{Type: "sriov", DevicePool: "a.b/z"}, refused: []string{"spec.Options.device_pool", "a.b/c"}},
		"PoolOfOthers": {reason: "The pool is for another tenant.", configs: []tenant.Config{config(t, "a", pools), config(t, "b", bluePool)},
			request: tenant.NetworkRequest{Type: "sriov", DevicePool: "a.b/blue"}, refused: []string{"spec.Options.device_pool", "a.b/blue", "use a.b/c, or leave it out"}},
		"PoolOfMine": {reason: "The tenant chooses one of its pools.", configs: []tenant.Config{config(t, "a", pools), config(t, "b", bluePool)},
			request: tenant.NetworkRequest{Type: "sriov", DevicePool: "a.b/blue", NamespaceLabels: map[string]string{"team": "blue"}}, want: "vlan/a.b/blue/8"},
		"PoolWithoutIDs": {reason: "Networks share the untagged segment of the functions.", configs: []tenant.Config{config(t, "a", `{hostDevices: [{name: a.b/c}]}`)},
			request: tenant.NetworkRequest{Type: "sriov"}, want: "nic/a.b/c/1"},
		"StoredVXLANPool": {reason: "A pool stored with VXLANs assigns nothing, and does not block other devices.", configs: []tenant.Config{config(t, "a", vxlanPool)},
			want: "vlan/ens4/1"},
		"StoredVXLANPoolAsked": {reason: "A virtual function has no VXLAN, whatever the type.", configs: []tenant.Config{config(t, "a", vxlanPool)},
			request: tenant.NetworkRequest{DevicePool: "a.b/c"}, refused: []string{"spec.Options.device_pool", "use ens4"}},
		"NoConfig": {reason: "There is no TenantConfig.", request: tenant.NetworkRequest{Namespace: "red"}, refused: []string{"metadata.namespace", "red", "TenantConfig"}},
		"NotMine":  {reason: "The only TenantConfig is for other namespaces.", configs: []tenant.Config{config(t, "a", blue)}, refused: []string{"TenantConfig"}},
		"Mine": {reason: "The namespace's labels match the selector.", configs: []tenant.Config{config(t, "a", blue)},
			request: tenant.NetworkRequest{NamespaceLabels: map[string]string{"team": "blue"}}, want: "nic/ens7/1"},
		"Merged": {reason: "Both TenantConfigs are for the namespace.", configs: []tenant.Config{config(t, "a", blue), config(t, "b", two)},
			request: tenant.NetworkRequest{NamespaceLabels: map[string]string{"team": "blue"}}, want: "vlan/ens4/5"},
		"NetworkID": {reason: "networkIds has a NetworkID for the type.", configs: []tenant.Config{config(t, "a", plugin)}, want: "vlan/ens4/1 shared"},
		"Plugin": {reason: "networkIds permits the plugin.", configs: []tenant.Config{config(t, "a", plugin)},
			request: tenant.NetworkRequest{Type: "flannel"}, want: "type/flannel/1 flan"},
		"OtherPlugin": {reason: "A tenant must not choose a plugin, which root executes.", configs: []tenant.Config{config(t, "a", plugin)},
			request: tenant.NetworkRequest{Type: "bridge"}, refused: []string{"spec.NetworkType", "bridge", "networkIds"}},
		"PluginDevice": {reason: "A plugin finds its device itself.", configs: []tenant.Config{config(t, "a", plugin)},
			request: tenant.NetworkRequest{Type: "flannel", Device: "ens4"}, refused: []string{"spec.Options.host_device", "leave it out"}},
		"Tie": {reason: "Two TenantConfigs have different NetworkIDs.", configs: []tenant.Config{config(t, "a", blue), config(t, "b", blue2)},
			request: tenant.NetworkRequest{Type: "flannel", NamespaceLabels: map[string]string{"team": "blue"}}, refused: []string{"TenantConfigs a and b", "blue", "azure"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.request.Type == "" {
				tc.request.Type = v1.TypeIPVLAN
			}
			got, err := tenant.ChooseSlot(tc.request, tc.configs, func(p network.TenantSlot) bool { return tc.taken[p] })
			checkRefusal(t, tc.reason, err, tc.refused)
			if err != nil {
				return
			}
			if text := strings.TrimSpace(got.Slot.String() + " " + got.NetworkID); text != tc.want {
				t.Errorf("%s\nChooseSlot: got %q, want %q", tc.reason, text, tc.want)
			}
			if !tenant.ContainsSlot(got.Config.TenantConfig, got.Slot) {
				t.Errorf("ContainsSlot(%s): got false for the chosen slot", got.Slot)
			}
		})
	}
}

func checkRefusal(t *testing.T, reason string, err error, parts []string) {
	t.Helper()
	if (err != nil) != (parts != nil) || err != nil && !errors.Is(err, network.ErrInvalid) {
		t.Fatalf("%s\ngot %v, want an error with %q", reason, err, parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s\ngot %q, want %q in it", reason, err, part)
		}
	}
}

// Creation must not become slow while a range fills.
func BenchmarkChoose(b *testing.B) {
	c := config(b, "a", `{hostDevices: [{name: ens4, vniType: vxlan, vniRange: "1-100000"}]}`)
	for i := range 5000 {
		reserve(b, c.Reservations, network.TenantSlot{Kind: network.SlotVXLAN, Device: "ens4", ID: i + 1})
	}
	for b.Loop() {
		if _, err := tenant.ChooseSlot(tenant.NetworkRequest{Type: v1.TypeIPVLAN}, []tenant.Config{c}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseReservations(b *testing.B) {
	reservations := tenant.NewReservations()
	for i := range 5000 {
		reserve(b, reservations, network.TenantSlot{Kind: network.SlotVXLAN, Device: "ens4", ID: i + 1})
	}
	texts := reservations.Encode()
	for b.Loop() {
		if _, err := tenant.ParseReservations(texts); err != nil {
			b.Fatal(err)
		}
	}
}
