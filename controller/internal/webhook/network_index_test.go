// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/internal/reserve"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// indexOf returns an index of DanmNets by name.
func indexOf(networks map[string]network.Network) *networkIndex {
	c := newNetworkIndex()
	for name, n := range networks {
		n.Ref = network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: name}
		c.put(n.Ref, storedNetwork{ParsedNetwork: kube.ParsedNetwork{Version: kube.SpecVersion{UID: "u", Generation: 2}, Network: &n}})
	}
	return c
}

func TestNetworkIndexTaken(t *testing.T) {
	t.Parallel()
	c := indexOf(map[string]network.Network{
		"vlan":  {ID: "a", Type: "ipvlan", Device: "ens4", VLAN: 5},
		"vxlan": {ID: "b", Type: "ipvlan", Device: "ens4", VXLAN: 500},
		"pool":  {ID: "c", Type: "sriov", DevicePool: "x/y", VLAN: 6},
		"nic":   {ID: "d", Type: "ipvlan", Device: "vl7_ens5"},
		"nic2":  {ID: "d", Type: "ipvlan", Device: "vx502"},
	})
	cases := map[string]struct {
		reason string
		slot   network.TenantSlot
		want   bool
	}{
		"VLAN":      {"A network uses the VLAN.", network.TenantSlot{Kind: network.SlotVLAN, Device: "ens4", ID: 5}, true},
		"OtherNIC":  {"A VLAN ID belongs to one NIC.", network.TenantSlot{Kind: network.SlotVLAN, Device: "ens5", ID: 5}, false},
		"NICName":   {"The name of its link is that of a NIC.", network.TenantSlot{Kind: network.SlotVLAN, Device: "ens5", ID: 7}, true},
		"NICName2":  {"The name of its link is that of a NIC.", network.TenantSlot{Kind: network.SlotVXLAN, Device: "ens5", ID: 502}, true},
		"VXLAN":     {"A VNI is unique on a node.", network.TenantSlot{Kind: network.SlotVXLAN, Device: "ens9", ID: 500}, true},
		"VXLANFree": {"No network uses the VNI.", network.TenantSlot{Kind: network.SlotVXLAN, Device: "ens4", ID: 501}, false},
		"PoolVLAN":  {"A network of a device pool uses the VLAN.", network.TenantSlot{Kind: network.SlotVLAN, Device: "x/y", ID: 6}, true},
		"NotAVXLAN": {"A VLAN ID is no VNI.", network.TenantSlot{Kind: network.SlotVXLAN, Device: "ens4", ID: 5}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.isTaken(tc.slot); got != tc.want {
				t.Errorf("isTaken(%s): got %v: %s", tc.slot, got, tc.reason)
			}
		})
	}
}

// The VLAN or VXLAN of a network counts as taken even if admission has not assigned it, as that of a
// live network of DANM, or if the network is invalid.
func TestUnassignedNetworksTakeSegments(t *testing.T) {
	t.Parallel()
	vlan, vxlan := network.TenantSlot{Kind: network.SlotVLAN, Device: "ens4", ID: 5}, network.TenantSlot{Kind: network.SlotVXLAN, Device: "ens4", ID: 500}
	pool := network.TenantSlot{Kind: network.SlotVLAN, Device: "x/y", ID: 5}
	cases := map[string]struct {
		reason string
		spec   v1.NetworkSpec
		slot   network.TenantSlot
	}{
		"VLAN":    {"DANM has assigned a VLAN.", v1.NetworkSpec{NetworkID: "a", NetworkType: "ipvlan", Options: v1.NetworkOptions{Device: "ens4", VLAN: 5}}, vlan},
		"VXLAN":   {"DANM has assigned a VXLAN.", v1.NetworkSpec{NetworkID: "a", NetworkType: "ipvlan", Options: v1.NetworkOptions{Device: "ens4", VXLAN: 500}}, vxlan},
		"Pool":    {"DANM has assigned a VLAN of virtual functions.", v1.NetworkSpec{NetworkID: "a", NetworkType: "sriov", Options: v1.NetworkOptions{DevicePool: "x/y", VLAN: 5}}, pool},
		"Invalid": {"Its subnet is invalid.", v1.NetworkSpec{NetworkID: "a", NetworkType: "ipvlan", Options: v1.NetworkOptions{Device: "ens4", VLAN: 5, CIDR: "10.0.0.0/99"}}, vlan},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newNetworkIndex()
			obj := &v1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "n", UID: "u", Generation: 1}, Spec: tc.spec}
			ref := network.Ref{Kind: v1.KindTenantNetwork, Namespace: "red", Name: "n"}
			c.put(ref, parseStored(obj))
			c.put(ref, parseStored(obj)) // an informer may report it twice
			if !c.isTaken(tc.slot) {
				t.Errorf("%s\nisTaken(%s): got false", tc.reason, tc.slot)
			}
			c.remove(ref)
			if c.isTaken(tc.slot) || len(c.unassigned) > 0 {
				t.Errorf("%s\nisTaken(%s) after its deletion: got true, left %v", tc.reason, tc.slot, c.unassigned)
			}
		})
	}
}

// A removed network leaves nothing, and an old version does not replace a new one.
func TestNetworkIndexForgets(t *testing.T) {
	t.Parallel()
	c := indexOf(map[string]network.Network{"a": {ID: "a", Type: "ipvlan", Device: "ens4", VLAN: 5}})
	ref := network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "a"}
	old := &network.Network{Ref: ref, ID: "a", Device: "ens4", VLAN: 9}
	c.put(ref, storedNetwork{ParsedNetwork: kube.ParsedNetwork{Version: kube.SpecVersion{UID: "u", Generation: 1}, Network: old}})
	if m, ok := c.get(ref); !ok || m.Network.VLAN != 5 {
		t.Errorf("after an old version: %+v", m.Network)
	}
	if c.isInvalid(ref) {
		t.Error("a valid network is invalid")
	}
	c.put(ref, storedNetwork{ParsedNetwork: kube.ParsedNetwork{Version: kube.SpecVersion{UID: "v", Generation: 1}, Err: network.ErrInvalid}})
	if !c.isInvalid(ref) || c.isInvalid(network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "none"}) {
		t.Error("the invalid network is valid, or one that does not exist is invalid")
	}
	if c.isTaken(network.TenantSlot{Kind: network.SlotVLAN, Device: "ens4", ID: 5}) {
		t.Error("an invalid network uses a VLAN")
	}
	c.remove(ref)
	c.remove(ref)
	if x := c.stored; len(c.networks)+len(x.slots)+len(x.links)+len(x.devices) != 0 {
		t.Errorf("left: %v %v", c.networks, x)
	}
}

func TestContenders(t *testing.T) {
	t.Parallel()
	c := indexOf(map[string]network.Network{
		"same": {ID: "a", Type: "ipvlan", Device: "ens4", VLAN: 5}, "other": {ID: "b", Type: "ipvlan", Device: "ens4", VLAN: 6},
		"named": {ID: "me", Type: "ipvlan", Device: "ens5", VLAN: 5}, "none": {ID: "c", Type: "flannel"},
	})
	unassigned := &network.Network{Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "unassigned"}, Type: "ipvlan", Device: "ens4", VLAN: 5}
	c.put(unassigned.Ref, storedNetwork{ParsedNetwork: kube.ParsedNetwork{Network: unassigned}})
	var got []string
	for _, n := range c.contenders(&network.Network{ID: "me", Type: "ipvlan", Device: "ens4", VLAN: 5}) {
		got = append(got, n.Ref.Name)
	}
	less := func(a, b string) bool { return a < b }
	if diff := cmp.Diff([]string{"named", "same"}, got, cmpopts.SortSlices(less)); diff != "" {
		t.Errorf("contenders: -want +got\n%s", diff)
	}
}

func TestNetworkIndexSynced(t *testing.T) {
	t.Parallel()
	c := newNetworkIndex()
	if err := c.checkSynced(); !errors.Is(err, reserve.ErrUnavailable) {
		t.Errorf("before all networks were read: got %v", err)
	}
	c.markSynced()
	if err := c.checkSynced(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestPreallocatedUses(t *testing.T) {
	t.Parallel()
	status := &v1.NetworkStatus{IPAM: &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{
		"n1": {V4: "10.0.0.5-10.0.0.9,10.0.0.12", V6: "fd00::5"}, "n2": {}, "!quarantine": {V4: "10.0.0.99"},
		"n3": {V6: "fd00::-fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}, // a node may write what it likes
	}}}
	addr := netip.MustParseAddr
	want := []network.Usage{
		{Node: "n1", V4: addr("10.0.0.5"), V6: addr("fd00::5")}, {Node: "n1", V4: addr("10.0.0.12"), V6: addr("fd00::5")},
		{Node: "n2"}, {Node: "n3", V6: addr("fd00::")}, {Node: "n3", V6: addr("fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")},
	}
	less := func(a, b network.Usage) bool {
		return a.Node+a.V4.String()+a.V6.String() < b.Node+b.V4.String()+b.V6.String()
	}
	if diff := cmp.Diff(want, preallocatedUses(status), cmpopts.SortSlices(less), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("pre-allocated: -want +got\n%s", diff)
	}
	withGateway := slices.ContainsFunc(preallocatedUses(status, addr("10.0.0.7"), addr("fd99::1")), func(u network.Usage) bool {
		return u.Node == "n1" && u.V4 == addr("10.0.0.7")
	})
	if !withGateway {
		t.Error("10.0.0.7, which is asked for, is not among the pre-allocated addresses, and is inside a range")
	}
	quarantined := &v1.NetworkStatus{IPAM: &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{
		"n1": {V4: "10.0.0.1-10.0.0.9", QuarantinedV4: "10.0.0.1,10.0.0.3"}, "n2": {V4: "10.0.0.1"},
	}}}
	want = []network.Usage{
		{Node: "n1", V4: addr("10.0.0.2")}, {Node: "n1", V4: addr("10.0.0.9")},
		{Node: "n2", V4: addr("10.0.0.1")}, {Node: "n2", V4: addr("10.0.0.1")}, {Node: "n2", V4: addr("10.0.0.1")},
	}
	if diff := cmp.Diff(want, preallocatedUses(quarantined, addr("10.0.0.1")), cmpopts.SortSlices(less), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("pre-allocated, without the router in quarantine that is asked for: -want +got\n%s", diff)
	}
	if got := preallocatedUses(&v1.NetworkStatus{}); got != nil {
		t.Errorf("pre-allocated without status.ipam: %v", got)
	}
}
