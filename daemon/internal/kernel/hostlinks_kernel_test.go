// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

func addrs(list ...string) []netip.Addr {
	all := []netip.Addr{}
	for _, a := range list {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

func vlanSpec(name string, id int) netwatcher.Spec {
	return netwatcher.Spec{Identity: network.Link{Device: "ens4", VLAN: id}, Name: name, Device: "ens4", MTU: 1500}
}

func vxlanSpec(name string, vni int, local string, peers ...string) netwatcher.Spec {
	s := netwatcher.Spec{
		Identity: network.Link{VXLAN: vni}, Name: name, Device: "ens4", MTU: 1450,
		Local: netip.MustParseAddr(local), Peers: addrs(peers...),
	}
	if s.Local.Is6() {
		s.MTU = 1430
	}
	return s
}

func TestHostLinkGolden(t *testing.T) {
	cases := map[string]struct {
		reason string
		kind   string
		spec   netwatcher.Spec
		want   string
	}{
		"VLAN": {
			reason: "A VLAN link has the alias, is up and has IPv6 disabled.",
			kind:   "vlan",
			spec:   vlanSpec("storage.500", 500),
			want: `
link storage.500 vlan 500 on ens4 mtu 1500 up alias patchbay:vlan/ens4/500 disable_ipv6=1 addr_gen_mode=1
`,
		},
		"VXLAN": {
			reason: "A VXLAN link learns, and has a default entry for each other node.",
			spec:   vxlanSpec("vx_backend", 700, "192.0.2.1", "192.0.2.2", "192.0.2.3"),
			want: `
link vx_backend vxlan 700 port 4789 local 192.0.2.1 on ens4 learning true mtu 1450 up alias patchbay:vxlan/700 disable_ipv6=1 addr_gen_mode=1
  fdb 00:00:00:00:00:00 dst 192.0.2.2
  fdb 00:00:00:00:00:00 dst 192.0.2.3
`,
		},
		"VXLANOverIPv6": {
			reason: "VXLAN over IPv6 has 20 more bytes of overhead.",
			spec:   vxlanSpec("vx_six", 16777214, "2001:db8::1", "2001:db8::2"),
			want: `
link vx_six vxlan 16777214 port 4789 local 2001:db8::1 on ens4 learning true mtu 1430 up alias patchbay:vxlan/16777214 disable_ipv6=1 addr_gen_mode=1
  fdb 00:00:00:00:00:00 dst 2001:db8::2
`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			needs(t, tc.kind)
			host, _ := newHost(t, 1500)
			k := openKernel(t, host)
			if tc.spec.Local.Is6() {
				inside(t, host, func() {
					// Without a link-local address, which the kernel would add with the carrier.
					must(t, sysctl{"ipv6/conf/ens4/addr_gen_mode", "1"}.write())
					must(t, sysctl{"ipv6/conf/ens4/disable_ipv6", "0"}.write())
				})
			}
			before := dump(t, host)
			if err := k.Links().Apply(t.Context(), netwatcher.Change{Op: netwatcher.OpCreate, Link: tc.spec}); err != nil {
				t.Fatalf("%s %v", tc.reason, err)
			}
			if diff := cmp.Diff(before+tc.want[1:], dump(t, host)); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.reason, diff)
			}
			found(t, k, netwatcher.ObservedLink{Spec: tc.spec, Managed: true, Up: true, HostUnreachable: true})
			if err := k.Links().Apply(t.Context(), netwatcher.Change{Op: netwatcher.OpDelete, Link: tc.spec}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, dump(t, host)); diff != "" {
				t.Errorf("left behind: -before +after\n%s", diff)
			}
		})
	}
}

var ips = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// found checks the links of State.
func found(t *testing.T, k *Host, want ...netwatcher.ObservedLink) {
	t.Helper()
	state, err := k.Links().State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range state.Links {
		if len(state.Links[i].MAC) == 0 {
			t.Errorf("the MAC of link %s is not known", state.Links[i].Name)
		}
		state.Links[i].MAC = nil // a random one
	}
	for i := range want {
		if len(want[i].Peers) == 0 {
			want[i].Peers = nil
		}
	}
	if diff := cmp.Diff(want, state.Links, ips); diff != "" {
		t.Errorf("State's links: -want +got\n%s", diff)
	}
}

func TestStateNICs(t *testing.T) {
	host, _ := newHost(t, 1600)
	k := openKernel(t, host)
	within(t, host, func(h *netlink.Handle) {
		must(t, sysctl{"ipv6/conf/ens4/disable_ipv6", "0"}.write())
		nic := find(t, h, "ens4")
		must(t, h.LinkSetHardwareAddr(nic, mac(t, "02:00:00:00:00:04")))
		for _, a := range []string{"192.0.2.1/24", "2001:db8::1/64", "192.0.2.9/24"} {
			addr, err := netlink.ParseAddr(a)
			must(t, err)
			must(t, h.AddrAdd(nic, addr))
		}
		must(t, h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", TxQLen: -1, HardwareAddr: mac(t, "02:00:00:00:00:05")}}))
		must(t, h.LinkSetMaster(nic, find(t, h, "br0")))
	})
	state, err := k.Links().State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []netwatcher.NIC{
		{
			Name: "ens4", Kind: "veth", MAC: "02:00:00:00:00:04", MTU: 1600, Up: true, Master: "br0", MasterKind: "bridge",
			Addresses: []netip.Prefix{prefix("192.0.2.1/24"), prefix("192.0.2.9/24"), prefix("2001:db8::1/64")},
		},
		{Name: "br0", Kind: "bridge", MAC: "02:00:00:00:00:05", MTU: 1600},
	}
	sortNICs := cmp.Transformer("ByName", func(nics []netwatcher.NIC) map[string]netwatcher.NIC {
		m := map[string]netwatcher.NIC{}
		for _, n := range nics {
			m[n.Name] = n
		}
		return m
	})
	if diff := cmp.Diff(want, state.NICs, ips, sortNICs); diff != "" {
		t.Errorf("NICs without loopback and link-local addresses: -want +got\n%s", diff)
	}
}
