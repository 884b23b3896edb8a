// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/internal/network"
)

func route(dst, gw string) network.Route {
	return network.Route{Dst: netip.MustParsePrefix(dst), Gateway: netip.MustParseAddr(gw)}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	policy := []network.Route{route("10.9.0.0/16", "10.0.0.1")}
	cases := map[string]struct {
		reason string
		slave  Slave
		bad    bool
	}{
		"Plain":       {"The slave is valid.", Slave{PodInterface: PodInterface{Name: "eth1"}, Kind: MACVLAN}, false},
		"Longest":     {"A name may have 15 bytes.", Slave{PodInterface: PodInterface{Name: strings.Repeat("x", 15)}, Kind: IPVLAN, Mode: "l3s"}, false},
		"TooLong":     {"The kernel would truncate the name.", Slave{PodInterface: PodInterface{Name: strings.Repeat("x", 16)}, Kind: IPVLAN}, true},
		"Empty":       {"The kernel would choose a name.", Slave{Kind: IPVLAN}, true},
		"Dot":         {"The name is a directory.", Slave{PodInterface: PodInterface{Name: ".."}, Kind: IPVLAN}, true},
		"Slash":       {"The name contains a path separator.", Slave{PodInterface: PodInterface{Name: "a/b"}, Kind: IPVLAN}, true},
		"Blank":       {"The kernel rejects white space.", Slave{PodInterface: PodInterface{Name: "a b"}, Kind: IPVLAN}, true},
		"Zero":        {"A zero byte ends a C string.", Slave{PodInterface: PodInterface{Name: "a\x00b"}, Kind: IPVLAN}, true},
		"Template":    {"The kernel would replace %d.", Slave{PodInterface: PodInterface{Name: "eth%d"}, Kind: IPVLAN}, true},
		"Kind":        {"The kind is not supported.", Slave{PodInterface: PodInterface{Name: "eth1"}, Kind: "bridge"}, true},
		"Mode":        {"The mode is one of the other kind.", Slave{PodInterface: PodInterface{Name: "eth1"}, Kind: IPVLAN, Mode: "bridge"}, true},
		"NoTable":     {"The routes would be added to the main table.", Slave{PodInterface: PodInterface{Name: "eth1", PolicyRoutes: policy}, Kind: IPVLAN}, true},
		"PolicyRoute": {"The routes have a table.", Slave{PodInterface: PodInterface{Name: "eth1", Table: 5, PolicyRoutes: policy}, Kind: IPVLAN}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := tc.slave.validate(); errors.Is(err, ErrInvalid) != tc.bad {
				t.Errorf("%s got %v", tc.reason, err)
			}
		})
	}
}

func TestRuleSources(t *testing.T) {
	t.Parallel()
	v4, v6 := netip.MustParsePrefix("10.0.0.5/24"), netip.MustParsePrefix("fd00::5/64")
	to4, to6 := route("10.9.0.0/16", "10.0.0.1"), route("fd09::/48", "fd00::1")
	cases := map[string]struct {
		slave Slave
		want  []string
	}{
		"None":           {Slave{PodInterface: PodInterface{V4: v4, V6: v6}}, nil},
		"Both":           {Slave{PodInterface: PodInterface{V4: v4, V6: v6, PolicyRoutes: []network.Route{to6, to4}}}, []string{"10.0.0.5", "fd00::5"}},
		"OneFamily":      {Slave{PodInterface: PodInterface{V4: v4, V6: v6, PolicyRoutes: []network.Route{to6}}}, []string{"fd00::5"}},
		"WithoutAddress": {Slave{PodInterface: PodInterface{V4: v4, PolicyRoutes: []network.Route{to6}}}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, a := range tc.slave.ruleSources() {
				got = append(got, a.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestOwnerAlias(t *testing.T) {
	t.Parallel()
	long := ownerAlias(strings.Repeat("n", 400))
	if len(long) != maxAlias {
		t.Errorf("alias of %d bytes, the kernel accepts %d", len(long), maxAlias)
	}
	cases := map[string]struct {
		reason              string
		link                netlink.LinkAttrs
		managed, unfinished bool
	}{
		"Finished":   {"The link has the alias.", netlink.LinkAttrs{Alias: ownerAlias("x")}, true, false},
		"Unfinished": {"The link has the group and no alias yet.", netlink.LinkAttrs{Group: unfinishedGroup}, true, true},
		"Unmanaged":  {"The link has neither.", netlink.LinkAttrs{}, false, false},
		"OtherAlias": {"The alias is another program's.", netlink.LinkAttrs{Alias: "uplink"}, false, false},
		"SameGroup":  {"The group is the same, and the alias is another program's.", netlink.LinkAttrs{Alias: "uplink", Group: unfinishedGroup}, false, false},
		"Prefix":     {"The alias is shorter than the prefix.", netlink.LinkAttrs{Alias: "patchbay"}, false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if isManaged(&tc.link) != tc.managed || isUnfinished(&tc.link) != tc.unfinished {
				t.Errorf("%s managed %v, unfinished %v", tc.reason, isManaged(&tc.link), isUnfinished(&tc.link))
			}
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	if a, b := temporaryName("eth0"), temporaryName("eth1"); a == b || !isValidLinkName(a) || a != temporaryName("eth0") {
		t.Errorf("temporary names %q and %q: want valid, different, the same each time", a, b)
	}
	for range 100 {
		if m := RandomMAC(); len(m) != 6 || m[0]&3 != 2 {
			t.Fatalf("%s must be a locally administered unicast address", m)
		}
	}
	for path, want := range map[string]string{"/var/run/netns/x": "/run/netns/x", "/run/netns/x": "", "/proc/1/ns/net": ""} {
		got, ok := trimVar(path)
		if ok != (want != "") || ok && got != want {
			t.Errorf("trimVar(%s) = %s, %v", path, got, ok)
		}
	}
}

func TestTableAttr(t *testing.T) {
	t.Parallel()
	for table, want := range map[int]uint8{100: 100, 255: 255, 256: unix.RT_TABLE_UNSPEC, 70000: unix.RT_TABLE_UNSPEC} {
		var header uint8
		if attrs := tableAttribute(&header, table, unix.RTA_TABLE); header != want || (len(attrs) > 0) != (table > 255) {
			t.Errorf("table %d: header %d and %d attributes", table, header, len(attrs))
		}
	}
}
