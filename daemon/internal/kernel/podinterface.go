// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// PodInterface describes an interface of a Pod, whatever link it is.
type PodInterface struct {
	// Netns is the path of the Pod's network namespace; empty, on Detach, if it is gone.
	Netns string
	// Name in the Pod, 1 to 15 bytes.
	Name string
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

// validate returns an error if the interface can never be configured.
func (i *PodInterface) validate() error {
	if !isValidLinkName(i.Name) {
		return fmt.Errorf("%w: interface name %q: %s", ErrInvalid, i.Name, linkNameRule)
	}
	if len(i.PolicyRoutes) > 0 && i.Table == 0 {
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

// hasFamilyOf reports whether the interface has an address of the route's family.
func (i *PodInterface) hasFamilyOf(r network.Route) bool {
	if r.Dst.Addr().Is4() {
		return i.V4.IsValid()
	}
	return i.V6.IsValid()
}

// ruleSources returns the interface's addresses of the families that have a policy route.
func (i *PodInterface) ruleSources() []netip.Addr {
	var v4, v6 bool
	for _, r := range i.PolicyRoutes {
		v4 = v4 || r.Dst.Addr().Is4()
		v6 = v6 || r.Dst.Addr().Is6()
	}
	var from []netip.Addr
	if v4 && i.V4.IsValid() {
		from = append(from, i.V4.Addr())
	}
	if v6 && i.V6.IsValid() {
		from = append(from, i.V6.Addr())
	}
	return from
}

// sysctls returns the settings that the interface needs before its first address.
func (i *PodInterface) sysctls() []sysctl {
	v6 := "ipv6/conf/" + i.Name + "/"
	var all []sysctl
	if i.V4.IsValid() {
		// The kernel sends a gratuitous ARP when the link comes up, which updates the
		// neighbour tables of peers.
		all = append(all, sysctl{"ipv4/conf/" + i.Name + "/arp_notify", "1"})
	}
	if !i.V6.IsValid() {
		return append(all, disableIPv6(i.Name))
	}
	return append(all,
		sysctl{v6 + "disable_ipv6", "0"},
		// Addresses and routes come from the network object, not from a router.
		sysctl{v6 + "accept_ra", "0"},
		// The kernel sends an unsolicited neighbour advertisement, like arp_notify.
		sysctl{v6 + "ndisc_notify", "1"},
		// The interface sends no router solicitations: the random delay of up to a second
		// before the first probe (RFC 4862, 5.4.2) has no use.
		sysctl{v6 + "router_solicitation_delay", "0"},
		sysctl{"ipv6/neigh/" + i.Name + "/retrans_time_ms", dadRetransMillis},
	)
}
