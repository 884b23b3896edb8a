// SPDX-License-Identifier: Apache-2.0

package svcwatcher_test

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// A node writes the addresses of a DanmEp. Each gives an endpoint of its family in a form that the
// API server accepts, or none.
func FuzzAddresses(f *testing.F) {
	f.Add("10.0.0.5/24", "fd00::5/64")
	f.Add("10.0.0.5", "::ffff:10.0.0.5")
	f.Add("010.0.0.5/24", "fe80::1%eth0/64")
	f.Add("fd00::5/64", "10.0.0.5/24")
	f.Add("127.0.0.1/8", "ff02::1")
	f.Add("none", "")
	f.Fuzz(func(t *testing.T, address, address6 string) {
		s := source(t, service(), []corev1.Pod{pod("a")}, []v1.DanmEp{ep("a", address, address6)})
		for _, g := range svcwatcher.Desired(s).Groups {
			for _, e := range g.Endpoints {
				a, err := netip.ParseAddr(e.Addresses[0])
				family := discoveryv1.AddressTypeIPv6
				if a.Is4() {
					family = discoveryv1.AddressTypeIPv4
				}
				if err != nil || len(e.Addresses) != 1 || a.Zone() != "" || a.Is4In6() || family != g.Family ||
					a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
					t.Errorf("%q, %q: endpoint %v in a group of %s", address, address6, e.Addresses, g.Family)
				}
			}
		}
	})
}
