// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Kinds of slaves, as the kernel names them.
const (
	// IPVLAN slaves share their parent's MAC.
	IPVLAN = "ipvlan"
	// MACVLAN slaves have a MAC each.
	MACVLAN = "macvlan"
)

// Slave is an interface of a Pod on top of a host link.
type Slave struct {
	// Netns is the path of the Pod's network namespace; empty, on Detach, if it is gone.
	Netns string
	// Name in the Pod, 1 to 15 bytes.
	Name string
	// Kind is IPVLAN or MACVLAN.
	Kind string
	// Mode of an IPVLAN is l2 (the default), l3 or l3s; of a MACVLAN bridge (the default),
	// private, vepa or passthru.
	Mode string
	// Parent is the name of the host link below.
	Parent string
	// MTU in bytes, at most the parent's; 0 is the parent's.
	MTU int
	// MAC of a MACVLAN; nil is a random one. An IPVLAN has its parent's.
	MAC net.HardwareAddr
	// Owner is the network, for the link's alias.
	Owner string
	// V4 and V6 are addresses with the subnet's prefix length; the zero Prefix is none.
	// Without V6, IPv6 is disabled on the interface.
	V4, V6 netip.Prefix
	// Routes are added to the main table, except those of a family without an address.
	Routes []network.Route
	// Table is the table of PolicyRoutes, which apply to packets from V4 or V6 only.
	Table int
	// PolicyRoutes of both families require a Table.
	PolicyRoutes []network.Route
}

// AttachResult describes an attached interface.
type AttachResult struct {
	// Index of the link in the Pod's namespace.
	Index int
	// MAC in the colon notation.
	MAC string
	// MTU in bytes.
	MTU int
}

// validate returns an error if the request can never succeed.
func (s *Slave) validate() error {
	if !isValidLinkName(s.Name) {
		return fmt.Errorf("%w: interface name %q: %s", ErrInvalid, s.Name, linkNameRule)
	}
	if _, err := s.linkInfo(); err != nil {
		return err
	}
	if len(s.PolicyRoutes) > 0 && s.Table == 0 {
		return fmt.Errorf("%w: policy routes require a routing table (rt_tables) in the network", ErrInvalid)
	}
	return nil
}

// maxLinkName is IFNAMSIZ without the final zero.
const maxLinkName = unix.IFNAMSIZ - 1

// linkNameRule is for errors about a link name.
const linkNameRule = "must be 1 to 15 bytes without white space, '/', ':' or '%'"

// isValidLinkName applies the rules of the kernel's dev_valid_name, and forbids '%', from which
// the kernel makes a template. Names become parts of paths.
func isValidLinkName(name string) bool {
	return name != "" && len(name) <= maxLinkName && name != "." && name != ".." &&
		!strings.ContainsAny(name, "/: \t\n\v\f\r%\x00")
}

// linkInfo is the IFLA_LINKINFO of the slave.
func (s *Slave) linkInfo() (*nl.RtAttr, error) {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(s.Kind))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	switch s.Kind {
	case IPVLAN:
		mode, ok := ipvlanMode(s.Mode)
		if !ok {
			return nil, fmt.Errorf("%w: IPVLAN mode %q: must be l2, l3 or l3s", ErrInvalid, s.Mode)
		}
		data.AddRtAttr(nl.IFLA_IPVLAN_MODE, nl.Uint16Attr(mode))
	case MACVLAN:
		mode, ok := macvlanMode(s.Mode)
		if !ok {
			return nil, fmt.Errorf("%w: MACVLAN mode %q: must be bridge, private, vepa or passthru", ErrInvalid, s.Mode)
		}
		data.AddRtAttr(nl.IFLA_MACVLAN_MODE, nl.Uint32Attr(mode))
	default:
		return nil, fmt.Errorf("%w: link kind %q: must be %s or %s", ErrInvalid, s.Kind, IPVLAN, MACVLAN)
	}
	return info, nil
}

// ipvlanMode returns the IPVLAN_MODE of <linux/if_link.h>. The empty mode is the default.
func ipvlanMode(name string) (mode uint16, ok bool) {
	switch name {
	case "", "l2":
		return 0, true
	case "l3":
		return 1, true
	case "l3s":
		return 2, true
	}
	return 0, false
}

// macvlanMode returns the MACVLAN_MODE of <linux/if_link.h>. The empty mode is the default.
func macvlanMode(name string) (mode uint32, ok bool) {
	switch name {
	case "private":
		return 1, true
	case "vepa":
		return 2, true
	case "", "bridge":
		return 4, true
	case "passthru":
		return 8, true
	}
	return 0, false
}

// hasFamilyOf reports whether the slave has an address of the route's family.
func (s *Slave) hasFamilyOf(r network.Route) bool {
	if r.Dst.Addr().Is4() {
		return s.V4.IsValid()
	}
	return s.V6.IsValid()
}

// ruleSources returns the slave's addresses of the families that have a policy route.
func (s *Slave) ruleSources() []netip.Addr {
	var v4, v6 bool
	for _, r := range s.PolicyRoutes {
		v4 = v4 || r.Dst.Addr().Is4()
		v6 = v6 || r.Dst.Addr().Is6()
	}
	var from []netip.Addr
	if v4 && s.V4.IsValid() {
		from = append(from, s.V4.Addr())
	}
	if v6 && s.V6.IsValid() {
		from = append(from, s.V6.Addr())
	}
	return from
}

// sysctls returns the settings that the slave needs before its first address.
func (s *Slave) sysctls() []sysctl {
	v6 := "ipv6/conf/" + s.Name + "/"
	var all []sysctl
	if s.V4.IsValid() {
		// The kernel sends a gratuitous ARP when the link comes up, which updates the
		// neighbour tables of peers.
		all = append(all, sysctl{"ipv4/conf/" + s.Name + "/arp_notify", "1"})
	}
	if !s.V6.IsValid() {
		return append(all, disableIPv6(s.Name))
	}
	return append(all,
		sysctl{v6 + "disable_ipv6", "0"},
		// Addresses and routes come from the network object, not from a router.
		sysctl{v6 + "accept_ra", "0"},
		// The kernel sends an unsolicited neighbour advertisement, like arp_notify.
		sysctl{v6 + "ndisc_notify", "1"},
		// The slave sends no router solicitations: the random delay of up to a second
		// before the first probe (RFC 4862, 5.4.2) has no use.
		sysctl{v6 + "router_solicitation_delay", "0"},
		sysctl{"ipv6/neigh/" + s.Name + "/retrans_time_ms", dadRetransMillis},
	)
}
