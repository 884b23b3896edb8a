// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"net/netip"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// opts compare addresses by value, and errors with errors.Is.
var opts = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.EquateErrors(),
	cmpopts.EquateEmpty(),
	cmpopts.IgnoreUnexported(Plan{}),
}

// newNet returns a network on ens4. Networks are ordered by age; 1 is the oldest.
func newNet(age int, id string, more ...func(*network.Network)) *network.Network {
	n := &network.Network{
		Ref: network.Ref{Kind: "ClusterNetwork", Name: id}, UID: id, ID: id, Type: "ipvlan", Device: "ens4",
		Created: time.Unix(int64(age), 0),
	}
	for _, m := range more {
		m(n)
	}
	return n
}

func named(name string) func(*network.Network) {
	return func(n *network.Network) { n.Ref.Name, n.UID = name, name }
}
func vlan(id int) func(*network.Network)   { return func(n *network.Network) { n.VLAN = id } }
func vxlan(vni int) func(*network.Network) { return func(n *network.Network) { n.VXLAN = vni } }
func mtu(m int) func(*network.Network)     { return func(n *network.Network) { n.MTU = m } }
func kind(k string) func(*network.Network) { return func(n *network.Network) { n.Type = k } }
func tenants(n *network.Network) {
	n.Ref.Kind, n.Ref.Namespace = "TenantNetwork", "ns"
}
func assigned(place string) func(*network.Network) {
	return func(n *network.Network) { n.Assignment = place + " 0123456789abcdef" }
}
func device(d string) func(*network.Network) {
	return func(n *network.Network) { n.Device = d }
}

func ref(name string) network.Ref { return network.Ref{Kind: "ClusterNetwork", Name: name} }

// host returns the state of a host: ens4 has addresses of both families, ens5 of IPv6 only.
func host(links ...ObservedLink) *State {
	return &State{
		NICs: []NIC{
			{Name: "ens4", MTU: 1500, Up: true, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8::1/64")}},
			{Name: "ens5", MTU: 9000, Up: true, Addresses: []netip.Prefix{netip.MustParsePrefix("2001:db8:5::1/64")}},
			{Name: "ens6", MTU: 1500, Up: false},
			{Name: "ens7", MTU: 1500, Up: true, Master: "br0", MasterKind: "bridge"},
		},
		Links: links,
	}
}

func vlanLink(name, dev string, id, mtu int) Spec {
	return Spec{Identity: network.Link{Device: dev, VLAN: id}, Name: name, Device: dev, MTU: mtu}
}

func vxlanLink(name, dev string, vni, mtu int, local string, peers ...string) Spec {
	return Spec{Identity: network.Link{VXLAN: vni}, Name: name, Device: dev, MTU: mtu, Local: netip.MustParseAddr(local), Peers: ipList(peers...)}
}

func ipList(list ...string) []netip.Addr {
	var all []netip.Addr
	for _, a := range list {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

func managed(s Spec) ObservedLink {
	return ObservedLink{Spec: s, Managed: true, Up: true, HostUnreachable: true, TagsFiltered: true}
}
func unmanaged(s Spec) ObservedLink { return ObservedLink{Spec: s, Up: true} }

// subnet gives the network the addresses of an IPv4 subnet.
func subnet(cidr string) func(*network.Network) {
	p := netip.MustParsePrefix(cidr)
	return func(n *network.Network) { n.V4 = &network.Subnet{CIDR: p, Start: p.Addr(), End: p.Addr().Next()} }
}
