// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"strings"
	"testing"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// A conflict message names the older network only if the readers of the younger one may see it: the
// message appears in errors, conditions and Events. Netadmins may see all networks.
func TestConflictHidesInvisibleNetworks(t *testing.T) {
	t.Parallel()
	tenants := func(ns string) network.Ref {
		return network.Ref{Kind: v1.KindTenantNetwork, Namespace: ns, Name: "secret"}
	}
	cluster := network.Ref{Kind: v1.KindClusterNetwork, Name: "secret"}
	cases := map[string]struct {
		reason    string
		older     network.Ref
		allowed   []string
		younger   network.Ref
		wantNamed bool
	}{
		"OtherTenant": {reason: "The older network is in another namespace.", older: tenants("blue"), younger: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "red", Name: "x"}},
		"DanmNet":     {reason: "Tenants read the conditions of DanmNets.", older: tenants("blue"), younger: network.Ref{Kind: v1.KindDanmNet, Namespace: "red", Name: "x"}},
		"Closed":      {reason: "The ClusterNetwork is for other namespaces.", older: cluster, allowed: []string{"blue"}, younger: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "red", Name: "x"}},
		"Open":        {reason: "The ClusterNetwork is for the namespace.", older: cluster, allowed: []string{"red"}, younger: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "red", Name: "x"}, wantNamed: true},
		"Own":         {reason: "The older network is in the same namespace.", older: tenants("red"), younger: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "red", Name: "x"}, wantNamed: true},
		"Netadmin":    {reason: "Netadmins may see all networks.", older: tenants("blue"), younger: network.Ref{Kind: v1.KindClusterNetwork, Name: "x"}, wantNamed: true},
	}
	conflicts := map[string]func(older, younger *network.Network){
		"backend": func(older, _ *network.Network) { older.Type = v1.TypeMACVLAN },
		"device":  func(older, younger *network.Network) { older.Device, older.VXLAN, younger.VXLAN = "ens5", 7, 7 },
		"mode":    func(older, _ *network.Network) { older.Mode = "l3s" },
		"name":    func(older, younger *network.Network) { older.VLAN = 5; younger.Device = older.LinkName() },
		"pool": func(older, younger *network.Network) {
			for _, n := range []*network.Network{older, younger} {
				s, err := network.FromDanmNet(&v1.DanmNet{Spec: v1.NetworkSpec{NetworkID: "a", Options: v1.NetworkOptions{CIDR: "10.0.0.0/24"}}})
				if err != nil {
					t.Fatal(err)
				}
				n.V4 = s.V4
			}
		},
	}
	for name, tc := range cases {
		for kind, set := range conflicts {
			older := &network.Network{Ref: tc.older, ID: "a", Type: v1.TypeIPVLAN, Device: "ens4", AllowedTenants: tc.allowed, Created: time.Unix(1, 0)}
			younger := &network.Network{Ref: tc.younger, ID: "a", Type: v1.TypeIPVLAN, Device: "ens4"}
			set(older, younger)
			err := network.CheckConflict(younger, []*network.Network{older})
			if err == nil {
				t.Fatalf("%s/%s: got no conflict", name, kind)
			}
			if named := strings.Contains(err.Error(), tc.older.String()); named != tc.wantNamed || !named && strings.Contains(err.Error(), "secret") {
				t.Errorf("%s/%s: %s named %t: %v", name, kind, tc.reason, named, err)
			}
		}
	}
	for want, n := range map[string]*network.Network{
		"vx7":             {Ref: tenants("red"), ID: "a", VXLAN: 7, Device: "ens4"},
		"vl7_ens4":        {Ref: tenants("red"), ID: "a", VLAN: 7, Device: "ens4"},
		"vl4094_enp3s0f0": {Ref: tenants("red"), ID: "a", VLAN: 4094, Device: "enp3s0f0"},
		"vl4094_7a65c8d3": {Ref: tenants("red"), ID: "a", VLAN: 4094, Device: "enp101s0f0np0"},
		"vl5_bcf472ab":    {Ref: tenants("red"), ID: "a", VLAN: 5, Device: "bond0.7"},
		"a.7":             {Ref: cluster, ID: "a", VLAN: 7, Device: "ens4"},
		"vx_a":            {Ref: cluster, ID: "a", VXLAN: 7, Device: "ens4"},
	} {
		if got := n.LinkName(); got != want {
			t.Errorf("link of %s: %s, want %s", n.Ref, got, want)
		}
	}
}
