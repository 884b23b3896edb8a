// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// models returns the options to compare models.
func models() cmp.Options {
	return cmp.Options{
		cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
		cmpopts.EquateEmpty(),
	}
}

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func TestFrom(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, kind, spec string
		want               *network.Network
	}{
		"Everything": {
			reason: "Each option is in the model, masked, ordered and in lower case.",
			kind:   v1.KindClusterNetwork,
			spec: `
NetworkID: blue
NetworkType: MacVLAN
AllowedTenants: [a, b]
Options:
  host_device: ens4
  vlan: 500
  container_prefix: blue
  mtu: 9000
  rt_tables: 300
  cidr: 10.0.0.9/24
  allocation_pool: {start: 10.0.0.10, end: 10.0.0.20}
  routes: {10.2.0.0/16: 10.0.0.2, 10.1.0.9/16: 10.0.0.1}
  net6: fd00::9/64
  allocation_pool_v6: {cidr: "fd00::1:0/112", end: "fd00::1:ff"}
  routes6: {"fd01::/48": "fd00::1"}
`,
			want: &network.Network{
				Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "net"}, UID: "uid", Generation: 3,
				ID: "blue", Type: "macvlan", AllowedTenants: []string{"a", "b"},
				Device: "ens4", VLAN: 500, Prefix: "blue", MTU: 9000, Table: 300, ConflictProbe: true,
				V4: &network.Subnet{
					CIDR: prefix("10.0.0.0/24"), Start: addr("10.0.0.10"), End: addr("10.0.0.20"),
					Routes: []network.Route{
						{Dst: prefix("10.1.0.0/16"), Gateway: addr("10.0.0.1")},
						{Dst: prefix("10.2.0.0/16"), Gateway: addr("10.0.0.2")},
					},
				},
				V6: &network.Subnet{
					CIDR: prefix("fd00::/64"), Start: addr("fd00::1:0"), End: addr("fd00::1:ff"),
					Routes: []network.Route{{Dst: prefix("fd01::/48"), Gateway: addr("fd00::1")}},
				},
			},
		},
		"Least": {
			reason: "IPVLAN, prefix eth and no addresses are the defaults.",
			kind:   v1.KindDanmNet, spec: `{NetworkID: x}`,
			want: &network.Network{
				Ref: network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "net"}, UID: "uid", Generation: 3,
				ID: "x", Type: "ipvlan", Prefix: "eth",
			},
		},
		"Probe": {
			reason: "IPVLAN can enable probes.",
			kind:   v1.KindTenantNetwork, spec: `{NetworkID: x, Options: {conflict_probe: true}}`,
			want: &network.Network{
				Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "net"}, UID: "uid", Generation: 3,
				ID: "x", Type: "ipvlan", Prefix: "eth", ConflictProbe: true,
			},
		},
		"TenantGuard": {
			reason: "The guard of a TenantNetwork is on by default and optional.",
			kind:   v1.KindTenantNetwork, spec: `{NetworkID: x, Options: {host_device: ens4, vlan: 5}}`,
			want: &network.Network{
				Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "net"}, UID: "uid", Generation: 3,
				ID: "x", Type: "ipvlan", Prefix: "eth", Device: "ens4", VLAN: 5, SourceGuard: true,
			},
		},
		"TenantNoGuard": {
			reason: "A TenantNetwork may disable the guard, such as for routers.",
			kind:   v1.KindTenantNetwork, spec: `{NetworkID: x, Options: {host_device: ens4, vlan: 5, source_guard: false}}`,
			want: &network.Network{
				Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "net"}, UID: "uid", Generation: 3,
				ID: "x", Type: "ipvlan", Prefix: "eth", Device: "ens4", VLAN: 5,
			},
		},
		"Guard": {
			reason: "Other networks can require the guard.",
			kind:   v1.KindClusterNetwork, spec: `{NetworkID: x, Options: {host_device: ens4, vxlan: 5, source_guard: true}}`,
			want: &network.Network{
				Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "net"}, UID: "uid", Generation: 3,
				ID: "x", Type: "ipvlan", Prefix: "eth", Device: "ens4", VXLAN: 5, SourceGuard: true, SourceGuardSet: true,
			},
		},
		"NoProbe": {
			reason: "MACVLAN can disable probes.",
			kind:   v1.KindDanmNet, spec: `{NetworkID: x, NetworkType: macvlan, Options: {conflict_probe: false}}`,
			want: &network.Network{
				Ref: network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "net"}, UID: "uid", Generation: 3,
				ID: "x", Type: "macvlan", Prefix: "eth",
			},
		},
		"Delegate": {
			reason: "The case of a plugin's name stays, because it is the name of a file.",
			kind:   v1.KindTenantNetwork, spec: `{NetworkID: x, NetworkType: MyPlugin}`,
			want: &network.Network{
				Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "net"}, UID: "uid", Generation: 3,
				ID: "x", Type: "MyPlugin", Prefix: "eth",
			},
		},
		"StoredDelegate": {
			reason: "A network stored before admission rejected these options works without them.",
			kind:   v1.KindClusterNetwork, spec: `{NetworkID: x, NetworkType: flannel, Options: {cidr: 10.0.0.0/24, net6: "fd00::/64", rt_tables: 100}}`,
			want: &network.Network{
				Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "net"}, UID: "uid", Generation: 3,
				ID: "x", Type: "flannel", Prefix: "eth",
			},
		},
		"SRIOV": {
			reason: "The model has the device pool and the VLAN.",
			kind:   v1.KindDanmNet, spec: `{NetworkID: x, NetworkType: SRIOV, Options: {device_pool: a/b, vlan: 7}}`,
			want: &network.Network{
				Ref: network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "net"}, UID: "uid", Generation: 3,
				ID: "x", Type: "sriov", Prefix: "eth", DevicePool: "a/b", VLAN: 7,
			},
		},
		"SRIOVOptions": {
			reason: "The model has each setting of virtual functions.",
			kind:   v1.KindClusterNetwork,
			spec: `{NetworkID: x, NetworkType: sriov, Options: {device_pool: a/b, vlan: 7, mtu: 9000, sriov: {vlan_qos: 5, vlan_protocol: 802.1AD,
				spoof_check: false, trust: true, link_state: enable, min_tx_rate: 100, max_tx_rate: 200, promiscuous: true}}}`,
			want: &network.Network{
				Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "net"}, UID: "uid", Generation: 3,
				ID: "x", Type: "sriov", Prefix: "eth", DevicePool: "a/b", VLAN: 7, MTU: 9000,
				SRIOV: network.SRIOV{
					VLANQoS: 5, VLANProtocol: 0x88a8, SpoofCheck: new(false), Trust: new(true),
					LinkState: "enable", MinTxRate: 100, MaxTxRate: 200, Promiscuous: true,
				},
			},
		},
		"SRIOVDefaults": {
			reason: "The model keeps apart what is not set and what is set to its default.",
			kind:   v1.KindDanmNet, spec: `{NetworkID: x, NetworkType: sriov, Options: {device_pool: a/b, vlan: 7, sriov: {vlan_protocol: 802.1q, spoof_check: true}}}`,
			want: &network.Network{
				Ref: network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "net"}, UID: "uid", Generation: 3,
				ID: "x", Type: "sriov", Prefix: "eth", DevicePool: "a/b", VLAN: 7,
				SRIOV: network.SRIOV{VLANProtocol: 0x8100, SpoofCheck: new(true)},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := network.FromObject(object(t, tc.kind, tc.spec))
			if err != nil {
				t.Fatalf("%s\nFromObject: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got, models()); diff != "" {
				t.Errorf("%s\nFromObject: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestFromMetadata(t *testing.T) {
	t.Parallel()
	created := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	o := &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: created, DeletionTimestamp: &created},
		Spec:       v1.NetworkSpec{NetworkID: "n", AllowedTenants: []string{"a"}},
	}
	n, err := network.FromObject(o)
	if err != nil {
		t.Fatal(err)
	}
	if !n.Deleting || !n.Created.Equal(created.Time) {
		t.Errorf("FromObject: got deleting %v, created %v, want true, %v", n.Deleting, n.Created, created)
	}
	n.AllowedTenants[0] = "b"
	if o.Spec.AllowedTenants[0] != "a" {
		t.Error("FromObject: the model shares a list with the object, which an informer's cache owns")
	}
}

func TestFromOtherKind(t *testing.T) {
	t.Parallel()
	if n, err := network.FromObject(&corev1.Pod{}); !errors.Is(err, network.ErrInvalid) {
		t.Errorf("FromObject(Pod): got %v, %v, want ErrInvalid", n, err)
	}
}

// All faults are reported at once.
func TestFromNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := network.FromObject(object(t, v1.KindDanmNet, `{NetworkID: ../x, NetworkType: a/b, AllowedTenants: [a], Options: {
		vlan: 4095, vxlan: -1, host_device: "a b", device_pool: p, container_prefix: 1, mtu: 1, rt_tables: 254,
		cidr: x, net6: y, allocation_pool: {start: x}, allocation_pool_v6: {cidr: z}, routes: {a: b}, routes6: {c: d}}}`))
	var invalid *network.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("FromObject: got %v, want an *InvalidError", err)
	}
	for _, path := range []string{
		"spec.NetworkID", "spec.NetworkType", "spec.AllowedTenants", "spec.Options.vlan", "spec.Options.vxlan",
		"spec.Options.host_device", "spec.Options.container_prefix", "spec.Options.mtu", "spec.Options.rt_tables",
		"spec.Options.cidr", "spec.Options.net6", "spec.Options.allocation_pool.start", "spec.Options.allocation_pool_v6.cidr",
		"spec.Options.routes[a]", "spec.Options.routes6[c]",
	} {
		found := false
		for _, f := range invalid.Faults {
			found = found || f.Field == path
		}
		if !found {
			t.Errorf("FromObject: no fault at %s in %v", path, err)
		}
	}
	if !strings.HasPrefix(err.Error(), "DanmNet/ns/net: spec.") {
		t.Errorf("FromObject: got %q, want it to begin with the object", err)
	}
}

// The API server bounds these values already.
func TestFromBounds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 2<<20)
	cases := map[string]struct {
		reason, path string
		spec         v1.NetworkSpec
	}{
		"Tenants":    {reason: "At most 256 tenants are allowed.", path: "AllowedTenants", spec: v1.NetworkSpec{AllowedTenants: make([]string, 257)}},
		"Tenant":     {reason: "The name of a namespace has at most 63 characters.", path: "AllowedTenants[1]", spec: v1.NetworkSpec{AllowedTenants: []string{"a", long}}},
		"Alloc":      {reason: "DANM's largest subnet is a /9.", path: "Options.alloc", spec: v1.NetworkSpec{Options: v1.NetworkOptions{Alloc: long}}},
		"Alloc6":     {reason: "The bound applies to IPv6 too.", path: "Options.alloc6", spec: v1.NetworkSpec{Options: v1.NetworkOptions{Alloc6: long}}},
		"DevicePool": {reason: "Kubernetes bounds the names of resources.", path: "Options.device_pool", spec: v1.NetworkSpec{Options: v1.NetworkOptions{DevicePool: long}}},
		"MinTxRate":  {reason: "A rate is not negative.", path: "Options.sriov.min_tx_rate", spec: v1.NetworkSpec{Options: v1.NetworkOptions{SRIOV: &v1.SRIOVOptions{MinTxRate: -1}}}},
		"VLAN":       {reason: "A VLAN ID is not negative.", path: "Options.vlan", spec: v1.NetworkSpec{Options: v1.NetworkOptions{VLAN: -1}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.spec.NetworkID = "net"
			_, err := network.FromObject(&v1.ClusterNetwork{Spec: tc.spec})
			if err == nil || !strings.Contains(err.Error(), "spec."+tc.path+": ") {
				t.Errorf("%s\nFromObject: got %.200v, want a fault at spec.%s", tc.reason, err, tc.path)
			}
			if err != nil && len(err.Error()) > 10000 {
				t.Errorf("FromObject: the message has %d bytes: it repeats the value", len(err.Error()))
			}
		})
	}
}

// The daemon's journal has networks as JSON. Records that were written before the settings of virtual
// functions existed have none.
func TestSRIOVInJSON(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]network.Network{
		"Other networks have the same text as before.": {Type: "ipvlan"},
		"All settings stay, and false stays apart from not set.": {Type: "sriov", SRIOV: network.SRIOV{
			VLANQoS: 5, VLANProtocol: network.EtherType8021Q, SpoofCheck: new(false), LinkState: "auto", MinTxRate: 1, MaxTxRate: 2, Promiscuous: true,
		}},
	} {
		data, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if written := strings.Contains(string(data), "SRIOV"); written != (want.Type == "sriov") {
			t.Errorf("%s\ngot %s", reason, data)
		}
		var got network.Network
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, models()); diff != "" {
			t.Errorf("%s\n-want +got\n%s", reason, diff)
		}
	}
}

// UsesDevicePool is true for SR-IOV only: other types ignore a device pool.
func TestUsesDevicePool(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]bool{"sriov": true, "ipvlan": false, "macvlan": false, "host-device": false} {
		if got := (&network.Network{Type: kind, DevicePool: "a/b"}).UsesDevicePool(); got != want {
			t.Errorf("%s: got %v, want %v", kind, got, want)
		}
	}
}

// An empty list allows no static address. Programs that read and write the object must keep it, because a
// missing list allows all addresses.
func TestEmptyStaticPoolStays(t *testing.T) {
	t.Parallel()
	written := &v1.ClusterNetwork{Spec: v1.NetworkSpec{NetworkID: "net", Options: v1.NetworkOptions{CIDR: "10.0.0.0/24", StaticPool: []v1.IPRange{}}}}
	data, err := json.Marshal(written.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	var read v1.ClusterNetwork
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	n, err := network.FromClusterNetwork(&read)
	if err != nil {
		t.Fatal(err)
	}
	if data, err = json.Marshal(n); err != nil {
		t.Fatal(err)
	}
	var kept network.Network
	if err := json.Unmarshal(data, &kept); err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]*network.Network{"read": n, "kept": &kept} {
		if n.V4.AllowsStatic(netip.MustParseAddr("10.0.0.9")) {
			t.Errorf("%s: %+v allows a static address", name, n.V4)
		}
	}
}
