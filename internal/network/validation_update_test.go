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
		"Same":     {reason: "An update without changes is allowed.", spec: base},
		"Harmless": {reason: "These changes affect new Pods only.", spec: with("vlan: 5", `vlan: 5, container_prefix: net, rt_tables: 7, routes: {10.9.0.0/16: 10.0.0.1}`)},
		"VLAN":     {reason: "The Pods would be on another segment.", spec: with("vlan: 5", "vlan: 6"), refused: []string{"spec.Options.vlan", "6", "Pod ns/web on node n1", "1 more", "keep 5"}},
		"VXLAN":    {reason: "The Pods would be on another segment.", spec: with("vlan: 5", "vxlan: 5"), refused: []string{"spec.Options.vlan", "spec.Options.vxlan", "leave it out"}},
		"Device":   {reason: "The Pods would be on another parent.", spec: with("ens4", "ens5"), refused: []string{"spec.Options.host_device", "ens5", "keep ens4"}},
		"Pool":     {reason: "The Pods would be on another parent.", spec: with("host_device: ens4", "device_pool: a/b"), refused: []string{"spec.Options.device_pool", "spec.Options.host_device"}},
		"Type":     {reason: "The Pods would need another backend.", spec: with("ipvlan", "macvlan"), refused: []string{"spec.NetworkType", "macvlan", "keep ipvlan"}},
		"Case":     {reason: "The type is case-insensitive.", spec: with("ipvlan", "IPVLAN")},
		"LowerMTU": {reason: "The Pods' packets would be dropped.", spec: with("1400", "1300"), refused: []string{"spec.Options.mtu", "1300", "use 1400 or more"}},
		"MoreMTU":  {reason: "A larger MTU drops no packets.", spec: with("1400", "1500")},
		"NoMTU":    {reason: "The parent's MTU is not smaller.", spec: with("mtu: 1400, ", "")},
		"CIDR":     {reason: "The Pods have addresses of the old subnet.", spec: with("cidr: 10.0.0.0/24", "cidr: 10.0.0.0/25"), refused: []string{"spec.Options.cidr", "10.0.0.0/25", "must contain 10.0.0.0/24"}},
		"Wider":    {reason: "The wider subnet has all addresses in use.", spec: with("cidr: 10.0.0.0/24", "cidr: 10.0.0.0/16")},
		"WiderOut": {reason: "The wider subnet has the addresses, and the pool does not.", spec: with("cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.99}", "cidr: 10.0.0.0/16, allocation_pool: {start: 10.0.7.0, end: 10.0.9.0}"), refused: []string{"spec.Options.allocation_pool", "10.0.0.20"}},
		"HostBits": {reason: "Host bits do not change the subnet.", spec: with("cidr: 10.0.0.0/24", "cidr: 10.0.0.9/24")},
		"NoCIDR":   {reason: "The Pods have addresses of the removed subnet.", spec: with("cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.99}, ", ""), refused: []string{"spec.Options.cidr", "keep 10.0.0.0/24"}},
		"Net6":     {reason: "The Pods have addresses of the old IPv6 subnet.", spec: with("fd00::/64", "fd01::/64"), refused: []string{"spec.Options.net6", "fd01::/64"}},
		"Shrink":   {reason: "The smaller pool has all addresses in use.", spec: with("10.0.0.99", "10.0.0.20")},
		"CutPool":  {reason: "10.0.0.20 is in use.", spec: with("10.0.0.99", "10.0.0.19"), refused: []string{"spec.Options.allocation_pool", "10.0.0.20", "node n2"}},
		"Gateway":  {reason: "The Pod would get the packets of others.", spec: with("mtu: 1400,", `mtu: 1400, routes: {10.9.0.0/16: 10.0.0.200},`), refused: []string{`spec.Options.routes[10.9.0.0/16]`, "10.0.0.200", "must not be an address in use", "Pod ns/web on node n1", "the address of a router"}},
		"Gateway6": {reason: "The same for IPv6, in a wider subnet.", spec: with(`net6: "fd00::/64"`, `net6: "fd00::/56", routes6: {"fd99::/64": "fd00::5"}`), refused: []string{`spec.Options.routes6[fd99::/64]`, "fd00::5"}},
		"Warm":     {reason: "A node may give the address to a Pod at any moment.", spec: with("mtu: 1400,", `mtu: 1400, routes: {10.9.0.0/16: 10.0.0.20},`), refused: []string{"10.0.0.20", "node n2 has pre-allocated"}},
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
			err := network.CheckUpdate(was, is, uses)
			if (err != nil) != (tc.refused != nil) || err != nil && !errors.Is(err, network.ErrInvalid) {
				t.Fatalf("%s\nCheckUpdate: got %v", tc.reason, err)
			}
			for _, part := range tc.refused {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s\nCheckUpdate: got %q, want %q in it", tc.reason, err, part)
				}
			}
			if err := network.CheckUpdate(was, is, nil); err != nil {
				t.Errorf("CheckUpdate without uses: got %v, want none", err)
			}
		})
	}
}

// Settings of virtual functions apply to Pods that start later. The functions of attached Pods keep theirs.
func TestCheckUpdateOfSRIOV(t *testing.T) {
	t.Parallel()
	was := model(t, `{NetworkType: sriov, Options: {device_pool: a/b, vlan: 5, sriov: {trust: true, promiscuous: true}}}`)
	uses := []network.Usage{{Pod: "ns/web", Node: "n1"}}
	if err := network.CheckUpdate(was, model(t, `{NetworkType: sriov, Options: {device_pool: a/b, vlan: 5, sriov: {vlan_qos: 5, link_state: auto}}}`), uses); err != nil {
		t.Errorf("change settings: got %v, want none", err)
	}
	err := network.CheckUpdate(was, model(t, `{NetworkType: sriov, Options: {device_pool: a/c, vlan: 6}}`), uses)
	for _, part := range []string{"spec.Options.device_pool", "keep a/b", "spec.Options.vlan", "keep 5"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("change the pool and the VLAN: got %v, want %q", err, part)
		}
	}
}

// Both addresses of a /31 may be in use. A wider subnet must not make one its network address.
func TestCheckUpdateOfEnds(t *testing.T) {
	t.Parallel()
	was := model(t, `{Options: {host_device: ens4, cidr: 10.0.1.0/31}}`)
	uses := []network.Usage{{Pod: "ns/web", Node: "n1", V4: netip.MustParseAddr("10.0.1.0")}}
	if err := network.CheckUpdate(was, model(t, `{Options: {host_device: ens4, cidr: 10.0.0.0/16}}`), uses); err != nil {
		t.Errorf("10.0.1.0 is a usual address of 10.0.0.0/16, got %v", err)
	}
	err := network.CheckUpdate(was, model(t, `{Options: {host_device: ens4, cidr: 10.0.1.0/24}}`), uses)
	if err == nil || !strings.Contains(err.Error(), "must not begin or end with 10.0.1.0, because Pod ns/web on node n1") {
		t.Errorf("10.0.1.0 is the network address of 10.0.1.0/24, got %v", err)
	}
}

// A Pod that has had the gateway's address all along does not forbid other changes.
func TestCheckUpdateOfOldGateway(t *testing.T) {
	t.Parallel()
	was := model(t, `{Options: {host_device: ens4, cidr: 10.0.0.0/26, routes: {10.9.0.0/16: 10.0.0.1}}}`)
	uses := []network.Usage{{Pod: "ns/router", Node: "n1", V4: netip.MustParseAddr("10.0.0.1")}}
	if err := network.CheckUpdate(was, model(t, `{Options: {host_device: ens4, cidr: 10.0.0.0/24, routes: {10.9.0.0/16: 10.0.0.1}}}`), uses); err != nil {
		t.Errorf("got %v, want none", err)
	}
}

// A new subnet affects no address in use. An MTU may be lower than the parent's.
func TestCheckUpdateOfBareNetwork(t *testing.T) {
	t.Parallel()
	uses := []network.Usage{{Pod: "ns/web", Node: "n1"}}
	bare := model(t, `{Options: {host_device: ens4}}`)
	if err := network.CheckUpdate(bare, model(t, `{Options: {host_device: ens4, cidr: 10.0.0.0/24, net6: "fd00::/64"}}`), uses); err != nil {
		t.Errorf("add subnets: %v", err)
	}
	err := network.CheckUpdate(bare, model(t, `{Options: {host_device: ens4, mtu: 9000}}`), uses)
	if err == nil || !strings.Contains(err.Error(), "leave it out") {
		t.Errorf("set an MTU that may be lower: got %v", err)
	}
}

func TestCheckDelete(t *testing.T) {
	t.Parallel()
	n := model(t, `{}`)
	if err := network.CheckDelete(n.Ref, nil); err != nil {
		t.Errorf("no use: %v", err)
	}
	err := network.CheckDelete(n.Ref, []network.Usage{{Pod: "ns/web", Node: "n1"}, {Pod: "ns/db", Node: "n2"}, {Pod: "ns/x", Node: "n1"}})
	for _, part := range []string{"ClusterNetwork/net", "metadata.name", "Pod ns/web on node n1", "2 more"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("three uses: got %v, want %q", err, part)
		}
	}
}

// A user who has deleted the Pods is not told to delete them.
func TestCheckDeleteOfEndingPods(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		state  network.PodState
		want   string
	}{
		"Runs":        {"The user can delete it.", network.PodRuns, "Pod ns/web on node n1 is attached to it (and 1 more): delete the Pods first"},
		"Terminating": {"It has a grace period, or a finalizer.", network.PodTerminating, "Pod ns/web on node n1 is attached to it until it has terminated (and 1 more): try again when the Pods are gone"},
		"Gone":        {"Its node may be off.", network.PodGone, "node n1 has not yet detached Pod ns/web, which is gone (and 1 more): try again, and check node n1 if that does not help"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := network.CheckDelete(model(t, `{}`).Ref, []network.Usage{{Pod: "ns/web", Node: "n1", PodState: tc.state}, {Pod: "ns/db", Node: "n2"}})
			if err == nil || !strings.HasSuffix(err.Error(), "but "+tc.want) {
				t.Errorf("%s\ngot %v, want %q at its end", tc.reason, err, tc.want)
			}
		})
	}
}

// Nobody finds the Pod of a DanmEp that DANM left over.
func TestCheckDeleteWithLeftover(t *testing.T) {
	t.Parallel()
	err := network.CheckDelete(model(t, `{}`).Ref, []network.Usage{{Pod: "ns/web", Node: "n1", DanmEp: "ns/ep"}, {Pod: "ns/db", Node: "n2"}})
	const want = `must not be in use when it is deleted, but DanmEp ns/ep is left over from Pod ns/web, which does not exist (and 1 more): delete the DanmEp ns/ep first`
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %q at its end", err, want)
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

// Without trunk the Pods' tagged frames would be dropped. To set trunk drops no frames.
func TestCheckUpdateOfTrunk(t *testing.T) {
	t.Parallel()
	const trunk = `{NetworkID: a, AllowedTenants: [vnf], Options: {host_device: ens4, trunk: true}}`
	with, without := model(t, trunk), model(t, strings.Replace(trunk, "true", "false", 1))
	uses := []network.Usage{{Pod: "ns/vnf", Node: "n1"}}
	if err := network.CheckUpdate(with, without, uses); err == nil || !strings.Contains(err.Error(), "spec.Options.trunk") || !strings.Contains(err.Error(), "keep true") {
		t.Errorf("off: got %v", err)
	}
	if err := errors.Join(network.CheckUpdate(with, without, nil), network.CheckUpdate(without, with, uses)); err != nil {
		t.Errorf("off without users, and on: got %v", err)
	}
}
