// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"regexp"
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Every annotation danm.io/assigned gives an error, or a slot within its bounds with the same encoding.
func FuzzParseAssignment(f *testing.F) {
	for _, seed := range []string{
		"vlan/ens4/1003 5f3a9c01d2e4b687", "vxlan/a.b/c/16777214 0123456789abcdef", "nic/x/1 0000000000000000", "type/flannel/7 ffffffffffffffff",
		"vlan/ens4/4095 0123456789abcdef", "vlan//1 0123456789abcdef", "vlan/ens4/01 0123456789abcdef", "vlan/ens4/1", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := network.ParseAssignment(text)
		if err != nil {
			return
		}
		if a.String() != text {
			t.Errorf("ParseAssignment(%q) is encoded as %q", text, a)
		}
		p := a.Slot.Parent()
		if p.VLAN < 0 || p.VLAN > 4094 || p.VXLAN < 0 || p.VXLAN > 16777214 || p.VLAN != 0 && p.VXLAN != 0 || p.Device != "" && p.DevicePool != "" {
			t.Errorf("ParseAssignment(%q): %+v", text, p)
		}
	})
}

// Every range of a TenantConfig gives an ErrInvalid, or IDs within their bounds with the same encoding.
func FuzzVNIRanges(f *testing.F) {
	for _, seed := range []string{"1000-2000,2500", "1", "4094-4095", "0", "9-1", "1-", ",", "00000001-16777214", " 1"} {
		f.Add("vlan", seed)
		f.Add("vxlan", seed)
	}
	f.Fuzz(func(t *testing.T, kind, text string) {
		m, err := network.FromTenantConfig(&v1.TenantConfig{HostDevices: []v1.HostDevice{{Name: "ens4", VNIType: kind, VNIRange: text}}})
		if err != nil {
			if !errors.Is(err, network.ErrInvalid) {
				t.Errorf("ranges %q: %v", text, err)
			}
			return
		}
		d := m.Devices[0]
		for limit, ranges := range map[int]network.VNIRanges{4094: d.VLANs, 16777214: d.VXLANs} {
			for _, r := range ranges {
				if r.First < 1 || r.Last < r.First || r.Last > limit || !ranges.Contains(r.First) || !ranges.Overlaps(ranges) {
					t.Errorf("ranges %q: %+v", text, ranges)
				}
			}
		}
	})
}

// Every annotation of a Service gives an ErrInvalid, or networks of its own namespace.
func FuzzParseService(f *testing.F) {
	f.Add(`{"app": "web"}`, "blue")
	f.Add(`{"a/b/c": ""}`, "../blue")
	f.Add(`[]`, "")
	f.Add(`{"a": 1}`, "x.y")
	f.Fuzz(func(t *testing.T, selector, name string) {
		r, err := network.ParseService("ns", map[string]string{"danm.io/selector": selector, "danm.io/tenantNetwork": name, "danm.k8s.io/clusterNetwork": name}, false)
		if err != nil {
			if !errors.Is(err, network.ErrInvalid) || r != nil {
				t.Errorf("selector %q, network %q: %v, %v", selector, name, r, err)
			}
			return
		}
		for _, ref := range r.Networks {
			if !regexp.MustCompile(`^[a-z0-9.-]+$`).MatchString(ref.Name) || ref.Namespace != "ns" && ref.Kind != v1.KindClusterNetwork {
				t.Errorf("network %q: %+v", name, ref)
			}
		}
		if len(r.Selector) == 0 {
			t.Errorf("selector %q selects everything", selector)
		}
	})
}
