// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"net"
	"net/netip"
	"testing"
)

// At startup the daemon restores the sources that the previous one permitted, and handles pending
// DELs, before netwatcher has named the links to guard.
func TestGuardBeforeTheFirstApply(t *testing.T) {
	t.Parallel()
	addresses := Source{Link: "vlan7", Pod: "pod", V4: netip.MustParseAddr("10.0.0.2"), V6: netip.MustParseAddr("fd00::2")}
	macvlan, second := addresses, addresses
	macvlan.MAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	second.MAC = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	cases := map[string]struct {
		reason  string
		sources map[string]Source
	}{
		"IPVLAN":  {"Its MAC is the link's, which is not known yet.", map[string]Source{"a": addresses}},
		"MACVLAN": {"It has a MAC of its own.", map[string]Source{"a": macvlan}},
		"Two":     {"A Pod has two interfaces on the link.", map[string]Source{"a": macvlan, "b": second}},
		"Mixed":   {"One of them is an IPVLAN.", map[string]Source{"a": addresses, "b": second}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &SourceGuard{index: sourceIndex{}}
			g.Restore(tc.sources)
			for name, s := range tc.sources {
				if err := g.Permit(name+"-new", s, true); err != nil {
					t.Errorf("%s permit: %v", tc.reason, err)
				}
				g.Revoke("vlan7", name)
				g.Revoke("vlan7", name+"-new")
			}
			if len(g.index) != 0 {
				t.Errorf("%s got %v, want nothing left", tc.reason, g.index)
			}
		})
	}
}
