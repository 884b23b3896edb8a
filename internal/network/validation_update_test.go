// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

func TestCheckUpdate(t *testing.T) {
	t.Parallel()
	const base = `{NetworkType: ipvlan, Options: {host_device: ens4, vlan: 5, mtu: 1400, cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.99}, net6: "fd00::/64"}}`
	with := func(old, changed string) string { return strings.Replace(base, old, changed, 1) }
	cases := map[string]struct {
		reason, spec string
		refused      []string
	}{
		"Same":     {reason: "Nothing changes.", spec: base},
		"Harmless": {reason: "For Pods to come.", spec: with("vlan: 5", `vlan: 5, container_prefix: net, rt_tables: 7, routes: {10.9.0.0/16: 10.0.0.1}`)},
		"VLAN":     {reason: "Another segment.", spec: with("vlan: 5", "vlan: 6"), refused: []string{"spec.Options.vlan", "6", "Pod ns/web on node n1", "1 more", "keep 5"}},
		"VXLAN":    {reason: "Another segment.", spec: with("vlan: 5", "vxlan: 5"), refused: []string{"spec.Options.vlan", "spec.Options.vxlan", "leave it out"}},
		"Device":   {reason: "Another parent.", spec: with("ens4", "ens5"), refused: []string{"spec.Options.host_device", "ens5", "keep ens4"}},
		"Pool":     {reason: "Another parent.", spec: with("host_device: ens4", "device_pool: a/b"), refused: []string{"spec.Options.device_pool", "spec.Options.host_device"}},
		"Type":     {reason: "Another backend.", spec: with("ipvlan", "macvlan"), refused: []string{"spec.NetworkType", "macvlan", "keep ipvlan"}},
		"Case":     {reason: "The same backend.", spec: with("ipvlan", "IPVLAN")},
		"LowerMTU": {reason: "Packets would be dropped.", spec: with("1400", "1300"), refused: []string{"spec.Options.mtu", "1300", "use 1400 or more"}},
		"MoreMTU":  {reason: "They fit.", spec: with("1400", "1500")},
		"NoMTU":    {reason: "The parent's is not less.", spec: with("mtu: 1400, ", "")},
		"CIDR":     {reason: "The bitmap is of the old one.", spec: with("cidr: 10.0.0.0/24", "cidr: 10.0.0.0/16"), refused: []string{"spec.Options.cidr", "10.0.0.0/16", "10.0.0.0/24"}},
		"HostBits": {reason: "The same subnet.", spec: with("cidr: 10.0.0.0/24", "cidr: 10.0.0.9/24")},
		"NoCIDR":   {reason: "Whose are the addresses?", spec: with("cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.99}, ", ""), refused: []string{"spec.Options.cidr", "keep 10.0.0.0/24"}},
		"Net6":     {reason: "The same for IPv6.", spec: with("fd00::/64", "fd01::/64"), refused: []string{"spec.Options.net6", "fd01::/64"}},
		"Shrink":   {reason: "To what is in use.", spec: with("10.0.0.99", "10.0.0.20")},
		"CutPool":  {reason: "10.0.0.20 is in use.", spec: with("10.0.0.99", "10.0.0.19"), refused: []string{"spec.Options.allocation_pool", "10.0.0.20", "node n2"}},
		"Static":   {reason: "10.0.0.200 was never in the pool.", spec: with("10.0.0.99", "10.0.0.120")},
	}
	uses := []network.Usage{
		{Pod: "ns/web", Node: "n1", V4: netip.MustParseAddr("10.0.0.200"), V6: netip.MustParseAddr("fd00::5")},
		{Node: "n2", V4: netip.MustParseAddr("10.0.0.20")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			was, is := model(t, base), model(t, tc.spec)
			err := was.CheckUpdate(is, uses)
			if (err != nil) != (tc.refused != nil) || err != nil && !errors.Is(err, network.ErrInvalid) {
				t.Fatalf("%s\nChange: got %v", tc.reason, err)
			}
			for _, part := range tc.refused {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s\nChange: got %q, want it to say %q", tc.reason, err, part)
				}
			}
			if err := was.CheckUpdate(is, nil); err != nil {
				t.Errorf("Change without users: got %v, want none", err)
			}
		})
	}
}

// A family that is added, or an MTU where the parent's was, meets nobody's address.
func TestCheckUpdateOfBareNetwork(t *testing.T) {
	t.Parallel()
	uses := []network.Usage{{Pod: "ns/web", Node: "n1"}}
	bare := model(t, `{Options: {host_device: ens4}}`)
	if err := bare.CheckUpdate(model(t, `{Options: {host_device: ens4, cidr: 10.0.0.0/24, net6: "fd00::/64"}}`), uses); err != nil {
		t.Errorf("add subnets: %v", err)
	}
	err := bare.CheckUpdate(model(t, `{Options: {host_device: ens4, mtu: 9000}}`), uses)
	if err == nil || !strings.Contains(err.Error(), "leave it out") {
		t.Errorf("set an MTU that may be lower: got %v", err)
	}
}

func TestCheckDelete(t *testing.T) {
	t.Parallel()
	n := model(t, `{}`)
	if err := n.CheckDelete(nil); err != nil {
		t.Errorf("nobody is attached: %v", err)
	}
	err := n.CheckDelete([]network.Usage{{Pod: "ns/web", Node: "n1"}, {Pod: "ns/db", Node: "n2"}, {Pod: "ns/x", Node: "n1"}})
	for _, part := range []string{"ClusterNetwork/net", "metadata.name", "Pod ns/web on node n1", "2 more"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("three are attached: got %v, want %q", err, part)
		}
	}
}

func model(t *testing.T, spec string) *network.Network {
	t.Helper()
	n, err := network.FromObject(object(t, v1.KindClusterNetwork, spec))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A trunk that is no longer one would drop the Pods' frames; the other way nobody is cut off.
func TestCheckUpdateOfTrunk(t *testing.T) {
	t.Parallel()
	const trunk = `{NetworkID: a, AllowedTenants: [vnf], Options: {host_device: ens4, trunk: true}}`
	with, without := model(t, trunk), model(t, strings.Replace(trunk, "true", "false", 1))
	uses := []network.Usage{{Pod: "ns/vnf", Node: "n1"}}
	if err := with.CheckUpdate(without, uses); err == nil || !strings.Contains(err.Error(), "spec.Options.trunk") || !strings.Contains(err.Error(), "keep true") {
		t.Errorf("off: got %v", err)
	}
	if err := errors.Join(with.CheckUpdate(without, nil), without.CheckUpdate(with, uses)); err != nil {
		t.Errorf("off without users, and on: got %v", err)
	}
}
