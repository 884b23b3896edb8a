// SPDX-License-Identifier: Apache-2.0

//go:build kernel || sriov

package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// dump describes a namespace like `ip -d link`, `ip address`, `ip route`, `ip rule` and `bridge fdb`,
// without loopback and without values that differ between runs (indexes, random MACs).
func dump(tb testing.TB, path string) string {
	tb.Helper()
	var b strings.Builder
	within(tb, path, func(h *netlink.Handle) {
		links := listed(tb, h.LinkList)
		slices.SortFunc(links, func(a, b netlink.Link) int { return strings.Compare(a.Attrs().Name, b.Attrs().Name) })
		for _, l := range links {
			if l.Attrs().Name == "lo" {
				continue
			}
			dumpLink(tb, &b, h, l)
		}
		dumpRules(tb, &b, h)
	})
	return b.String()
}

// listed repeats a list that a change interrupted.
func listed[T any](tb testing.TB, list func() ([]T, error)) []T {
	tb.Helper()
	const tries = 100
	var err error
	for range tries {
		var all []T
		if all, err = list(); err == nil {
			return all
		}
		if !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	must(tb, err)
	return nil
}

func dumpLink(tb testing.TB, b *strings.Builder, h *netlink.Handle, l netlink.Link) {
	tb.Helper()
	a := l.Attrs()
	state := "down"
	if a.Flags&net.FlagUp != 0 {
		state = "up"
	}
	fmt.Fprintf(b, "link %s %s mtu %d %s", a.Name, kindOf(h, l), a.MTU, state)
	if a.Group != 0 {
		fmt.Fprintf(b, " group %d", a.Group)
	}
	if a.Alias != "" {
		fmt.Fprintf(b, " alias %s", a.Alias)
	}
	fmt.Fprintf(b, "%s\n", dumpSysctls(a.Name))
	addrs := listed(tb, func() ([]netlink.Addr, error) { return h.AddrList(l, netlink.FAMILY_ALL) })
	for _, addr := range addrs {
		if addr.IP.IsLinkLocalUnicast() {
			fmt.Fprintf(b, "  address link-local\n")
			continue
		}
		fmt.Fprintf(b, "  address %s broadcast %v%s\n", addr.IPNet, addr.Broadcast, dumpFlags(addr.Flags))
	}
	for _, line := range append(dumpRoutes(tb, h, l), dumpFDB(tb, h, l)...) {
		fmt.Fprintf(b, "  %s\n", line)
	}
}

// Names that ip(8) prints.
var (
	macvlanNames = map[netlink.MacvlanMode]string{
		netlink.MACVLAN_MODE_PRIVATE: "private", netlink.MACVLAN_MODE_VEPA: "vepa",
		netlink.MACVLAN_MODE_BRIDGE: "bridge", netlink.MACVLAN_MODE_PASSTHRU: "passthru",
	}
	ipvlanNames = map[netlink.IPVlanMode]string{
		netlink.IPVLAN_MODE_L2: "l2", netlink.IPVLAN_MODE_L3: "l3", netlink.IPVLAN_MODE_L3S: "l3s",
	}
)

// kindOf returns the link's kind with its settings.
func kindOf(h *netlink.Handle, l netlink.Link) string {
	parent := "another namespace"
	if l.Attrs().NetNsID < 0 {
		if p, err := h.LinkByIndex(l.Attrs().ParentIndex); err == nil {
			parent = p.Attrs().Name
		}
	}
	switch l := l.(type) {
	case *netlink.Macvlan:
		return fmt.Sprintf("macvlan %s on %s", macvlanNames[l.Mode], parent)
	case *netlink.IPVlan:
		return fmt.Sprintf("ipvlan %s on %s", ipvlanNames[l.Mode], parent)
	case *netlink.Vlan:
		return fmt.Sprintf("vlan %d on %s", l.VlanId, parent)
	case *netlink.Vxlan:
		dev := "nothing"
		if p, err := h.LinkByIndex(l.VtepDevIndex); err == nil {
			dev = p.Attrs().Name
		}
		return fmt.Sprintf("vxlan %d port %d local %s on %s learning %v", l.VxlanId, l.Port, l.SrcAddr, dev, l.Learning)
	}
	return l.Type()
}

func dumpFlags(flags int) string {
	var s string
	if flags&unix.IFA_F_TENTATIVE != 0 {
		s += " tentative"
	}
	if flags&unix.IFA_F_NODAD != 0 {
		s += " nodad"
	}
	return s
}

// dumpSysctls returns the settings that differ from the kernel's defaults.
func dumpSysctls(name string) string {
	var s string
	for _, c := range []struct{ short, path, usual string }{
		{"arp_notify", "ipv4/conf/" + name + "/arp_notify", "0"},
		{"disable_ipv6", "ipv6/conf/" + name + "/disable_ipv6", "0"},
		{"addr_gen_mode", "ipv6/conf/" + name + "/addr_gen_mode", "0"},
		{"accept_ra", "ipv6/conf/" + name + "/accept_ra", "1"},
		{"ndisc_notify", "ipv6/conf/" + name + "/ndisc_notify", "0"},
		{"retrans_time_ms", "ipv6/neigh/" + name + "/retrans_time_ms", "1000"},
	} {
		if v, err := os.ReadFile("/proc/sys/net/" + c.path); err == nil && strings.TrimSpace(string(v)) != c.usual {
			s += fmt.Sprintf(" %s=%s", c.short, strings.TrimSpace(string(v)))
		}
	}
	return s
}

func dumpRoutes(tb testing.TB, h *netlink.Handle, l netlink.Link) []string {
	tb.Helper()
	filter := &netlink.Route{Table: unix.RT_TABLE_UNSPEC, LinkIndex: l.Attrs().Index}
	routes := listed(tb, func() ([]netlink.Route, error) {
		return h.RouteListFiltered(netlink.FAMILY_ALL, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
	})
	var lines []string
	for _, r := range routes {
		if r.Table == unix.RT_TABLE_LOCAL || r.Dst != nil && (r.Dst.IP.IsLinkLocalUnicast() || r.Dst.IP.IsMulticast()) {
			continue
		}
		line := fmt.Sprintf("route %s table %d proto %s", r.Dst, r.Table, r.Protocol)
		if r.Gw != nil {
			line += " via " + r.Gw.String()
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func dumpRules(tb testing.TB, b *strings.Builder, h *netlink.Handle) {
	tb.Helper()
	rules := listed(tb, func() ([]netlink.Rule, error) { return h.RuleList(netlink.FAMILY_ALL) })
	for _, r := range rules {
		if r.Src != nil {
			fmt.Fprintf(b, "rule from %s table %d\n", r.Src, r.Table)
		}
	}
}

// dumpFDB returns a VXLAN's forwarding entries.
func dumpFDB(tb testing.TB, h *netlink.Handle, l netlink.Link) []string {
	tb.Helper()
	if l.Type() != "vxlan" {
		return nil
	}
	neighs := listed(tb, func() ([]netlink.Neigh, error) { return h.NeighList(l.Attrs().Index, unix.AF_BRIDGE) })
	var lines []string
	for _, n := range neighs {
		lines = append(lines, fmt.Sprintf("fdb %s dst %s", n.HardwareAddr, n.IP))
	}
	slices.Sort(lines)
	return lines
}

// dropLine removes one line from a dump.
func dropLine(dump, line string) string { return strings.Replace(dump, line+"\n", "", 1) }
