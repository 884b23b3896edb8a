// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// drawNetworks returns networks that often conflict: they have few devices, IDs, VNIs and ages.
func drawNetworks(t *rapid.T) []*network.Network {
	nets := make([]*network.Network, rapid.IntRange(1, 8).Draw(t, "count"))
	for i := range nets {
		n := &network.Network{
			Ref:     network.Ref{Kind: v1.KindClusterNetwork, Name: fmt.Sprintf("n%d", i)},
			UID:     fmt.Sprintf("uid%d", i),
			Created: time.Unix(rapid.Int64Range(0, 3).Draw(t, "created"), 0),
			ID:      rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id"),
			Type:    rapid.SampledFrom([]string{"ipvlan", "macvlan", "bridge"}).Draw(t, "type"),
			Device:  rapid.SampledFrom([]string{"ens4", "ens5", "a.5"}).Draw(t, "device"),
		}
		switch rapid.IntRange(0, 2).Draw(t, "link") {
		case 1:
			n.VLAN = rapid.IntRange(5, 6).Draw(t, "vlan")
		case 2:
			n.VXLAN = rapid.IntRange(5, 6).Draw(t, "vxlan")
		}
		if rapid.Bool().Draw(t, "l3") {
			third := rapid.IntRange(0, 3).Draw(t, "subnet")
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(third), 0}), 24)
			n.V4 = &network.Subnet{CIDR: p, Start: p.Addr().Next(), End: p.Addr().Next()}
		}
		nets[i] = n
	}
	return nets
}

// The conflicts depend on the set of networks only, not on their order.
func TestConflictsDoNotDependOnOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nets := drawNetworks(t)
		want := network.Conflicts(nets)
		got := network.Conflicts(rapid.Permutation(nets).Draw(t, "order"))
		if diff := cmp.Diff(texts(want), texts(got), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("Conflicts of another order: -want +got\n%s", diff)
		}
	})
}

// A younger network does not change the conflicts of older ones.
func TestConflictsNeverHitTheOlder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nets := drawNetworks(t)
		youngest := nets[0]
		for _, n := range nets {
			if youngest.Older(n) {
				youngest = n
			}
		}
		var older []*network.Network
		for _, n := range nets {
			if n != youngest {
				older = append(older, n)
			}
		}
		want, got := texts(network.Conflicts(older)), texts(network.Conflicts(nets))
		delete(got, youngest.Ref)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("Conflicts of the older networks, without and with %s: -want +got\n%s", youngest.Ref, diff)
		}
	})
}

// Networks without a conflict can be configured on one node: each name is for one link, and each link has
// one device and one backend.
func TestNetworksWithoutConflictsAreCompatible(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nets := drawNetworks(t)
		conflicts := network.Conflicts(nets)
		names, backends := map[string]network.Link{}, map[network.Link]string{}
		for _, n := range nets {
			link, ok := n.Link()
			if _, conflict := conflicts[n.Ref]; conflict || !ok {
				continue
			}
			if link.IsNIC() {
				names[n.Device] = link
			}
			if n.Delegates() {
				continue
			}
			if other, ok := backends[link]; ok && other != n.Type {
				t.Errorf("%s serves %s and %s", link, other, n.Type)
			}
			backends[link] = n.Type
		}
		for _, n := range nets {
			link, _ := n.Link()
			if _, conflict := conflicts[n.Ref]; !conflict && !link.IsNIC() {
				if nic, ok := names[oldestName(nets, conflicts, link)]; ok {
					t.Errorf("link %s has the name of %s", link, nic)
				}
			}
		}
	})
}

// oldestName returns the name of a link: that of the oldest network on it.
func oldestName(nets []*network.Network, conflicts map[network.Ref]error, link network.Link) string {
	var oldest *network.Network
	for _, n := range nets {
		l, _ := n.Link()
		if _, conflict := conflicts[n.Ref]; !conflict && l == link && (oldest == nil || n.Older(oldest)) {
			oldest = n
		}
	}
	return oldest.LinkName()
}

func texts(errs map[network.Ref]error) map[network.Ref]string {
	m := map[network.Ref]string{}
	for ref, err := range errs {
		m[ref] = err.Error()
	}
	return m
}

// The link names of valid networks fit into IFNAMSIZ.
func TestLinkNamesFit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := v1.NetworkOptions{Device: "ens4"}
		if rapid.Bool().Draw(t, "vlan") {
			o.VLAN = rapid.Int32Range(1, 4094).Draw(t, "id")
		} else {
			o.VXLAN = rapid.Int32Range(1, 16777214).Draw(t, "vni")
		}
		id := rapid.StringMatching(`[A-Za-z0-9._-]{1,12}`).Draw(t, "NetworkID")
		n, err := network.FromObject(&v1.ClusterNetwork{Spec: v1.NetworkSpec{NetworkID: id, Options: o}})
		if err == nil && len(n.LinkName()) > 15 {
			t.Errorf("link name %q has %d bytes", n.LinkName(), len(n.LinkName()))
		}
	})
}
