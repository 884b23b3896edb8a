// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"net/netip"
	"regexp"
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Every annotation gives an ErrInvalid, or valid requests.
func FuzzParseInterfaces(f *testing.F) {
	for _, seed := range []string{
		`[]`, `null`, `[{"clusterNetwork":"a","ip":"dynamic","ip6":"none"}]`, `[{"network":"a","ip":"10.0.0.1/24"}`,
		`[{"tenantNetwork":"a","proutes":{"10.0.0.0/8":"10.0.0.1"},"proutes6":null}] x`, `[{"network":"../x","ip":"fd00::1%a"}]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		requests, err := network.ParseInterfaces(map[string]string{v1.InterfacesAnnotation: value})
		if err != nil {
			if !errors.Is(err, network.ErrInvalid) || requests != nil {
				t.Errorf("ParseInterfaces(%q): got %v, %v", value, requests, err)
			}
			return
		}
		for _, r := range requests {
			checkRequest(t, r)
		}
	})
}

func checkRequest(t *testing.T, r network.InterfaceRequest) {
	t.Helper()
	if !regexp.MustCompile(`^[a-z0-9.-]+$`).MatchString(r.Network) || r.Kind == "" {
		t.Errorf("network %s %q", r.Kind, r.Network)
	}
	for bits, a := range map[int]network.AddressRequest{32: r.V4, 128: r.V6} {
		if a.Dynamic && a.Static.IsValid() || a.Static.IsValid() && (a.Static.BitLen() != bits || a.Static.Zone() != "") {
			t.Errorf("address of %d bits: %+v", bits, a)
		}
	}
	for bits, routes := range map[int][]network.Route{32: r.Proutes, 128: r.Proutes6} {
		checkRoutes(t, bits, routes)
	}
}

func checkRoutes(t *testing.T, bits int, routes []network.Route) {
	t.Helper()
	seen := map[netip.Prefix]bool{}
	for _, r := range routes {
		if r.Dst.Addr().BitLen() != bits || r.Gateway.BitLen() != bits || r.Dst != r.Dst.Masked() || seen[r.Dst] {
			t.Errorf("route of %d bits: %v", bits, r)
		}
		seen[r.Dst] = true
	}
}

// Every subnet gives an ErrInvalid, or a pool inside it.
func FuzzSubnet(f *testing.F) {
	f.Add("10.0.0.0/24", "10.0.0.9", "10.0.0.10", "fd00::/64", "fd00::1:0/112", "fd00::1:1", "fd00::1:2", "10.1.0.0/16", "10.0.0.1")
	f.Add("10.0.0.0/31", "", "", "fd00::/127", "", "", "", "", "")
	f.Add("0.0.0.0/0", "0.0.0.0", "255.255.255.255", "::/0", "", "::", "", "::/0", "::1")
	f.Fuzz(func(t *testing.T, cidr, start, end, net6, cidr6, start6, end6, dst, gw string) {
		o := v1.NetworkOptions{
			CIDR: cidr, Pool: &v1.IPPool{Start: start, End: end},
			Net6: net6, Pool6: &v1.IPPoolV6{CIDR: cidr6, IPPool: v1.IPPool{Start: start6, End: end6}},
		}
		if dst != "" {
			o.Routes = map[string]v1.Gateway{dst: v1.Gateway(gw)}
		}
		n, err := network.FromObject(&v1.DanmNet{Spec: v1.NetworkSpec{NetworkID: "n", Options: o}})
		if err != nil {
			if !errors.Is(err, network.ErrInvalid) || n != nil {
				t.Errorf("FromObject: got %v, %v", n, err)
			}
			return
		}
		checkSubnet(t, 32, n.V4)
		checkSubnet(t, 128, n.V6)
	})
}

func checkSubnet(t *testing.T, bits int, s *network.Subnet) {
	t.Helper()
	if s == nil {
		return
	}
	if s.CIDR.Addr().BitLen() != bits || s.CIDR != s.CIDR.Masked() || s.End.Less(s.Start) ||
		!s.CIDR.Contains(s.Start) || !s.CIDR.Contains(s.End) {
		t.Errorf("subnet of %d bits: %+v", bits, s)
	}
	checkRoutes(t, bits, s.Routes)
}

// A valid name is safe as a part of a path and as the name of a link.
func FuzzNames(f *testing.F) {
	f.Add("blue", "ipvlan", "eth", "ens4")
	f.Add("../x", "a/b", "9", "a b")
	f.Add("a..b", "IPVLAN", "e-_", "ens4.100")
	f.Fuzz(func(t *testing.T, id, backend, containerPrefix, device string) {
		n, err := network.FromObject(&v1.DanmNet{Spec: v1.NetworkSpec{
			NetworkID: id, NetworkType: backend, Options: v1.NetworkOptions{Prefix: containerPrefix, Device: device},
		}})
		if err != nil {
			return
		}
		path := regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
		if !path.MatchString(n.ID) || !path.MatchString(n.Type) {
			t.Errorf("ID %q, type %q", n.ID, n.Type)
		}
		for _, link := range []string{n.Device, n.Prefix} {
			if len(link) > 15 || link == "." || link == ".." || regexp.MustCompile(`[/:\s\x00-\x1f]`).MatchString(link) {
				t.Errorf("link name %q", link)
			}
		}
	})
}
