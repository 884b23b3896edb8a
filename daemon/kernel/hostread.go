// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// readAddresses notes which links have addresses, and the global ones.
func (s *reading) readAddresses(c *conn) error {
	msgs, err := c.list(unix.RTM_GETADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC))
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, m := range msgs {
		head := nl.DeserializeIfAddrmsg(m)
		l := s.byIndex[int(head.Index)]
		if l == nil {
			continue // newer than the list of links
		}
		l.addressed = true
		a, err := readAddress(m)
		if err != nil {
			return err
		}
		if head.Scope == unix.RT_SCOPE_UNIVERSE && a.Addr().IsGlobalUnicast() {
			l.global = append(l.global, a)
		}
	}
	return nil
}

// readAddress takes the local address of an RTM_NEWADDR; of a point-to-point
// link IFA_ADDRESS is the other end.
func readAddress(m []byte) (netip.Prefix, error) {
	attrs, err := attributes(m, unix.SizeofIfAddrmsg)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("read an address: %w", err)
	}
	head := nl.DeserializeIfAddrmsg(m)
	var local, address netip.Addr
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(a.Value)
		case unix.IFA_ADDRESS:
			address, _ = netip.AddrFromSlice(a.Value)
		}
	}
	if !local.IsValid() {
		local = address
	}
	return netip.PrefixFrom(local, int(head.Prefixlen)), nil
}

// readPeers notes the VTEPs that get broadcasts of our VXLANs, which are the forwarding
// entries of the all-zero address, and those that the other entries name.
func (s *reading) readPeers(c *conn) error {
	if !s.vxlans {
		return nil
	}
	head := nl.NewIfInfomsg(unix.AF_BRIDGE)
	msgs, err := c.list(unix.RTM_GETNEIGH, head)
	if err != nil {
		return fmt.Errorf("list forwarding entries: %w", err)
	}
	for _, m := range msgs {
		e, ok := readEntry(m)
		l := s.byIndex[e.index]
		switch {
		case !ok || l == nil:
		case e.everything():
			l.peers = append(l.peers, e.vtep)
		case !slices.Contains(l.learned, e.vtep): // there are as many as nodes at most, but for an attack
			l.learned = append(l.learned, e.vtep)
		}
	}
	for _, l := range s.links {
		slices.SortFunc(l.peers, netip.Addr.Compare)
		slices.SortFunc(l.learned, netip.Addr.Compare)
	}
	return nil
}

// Flags of an address in IFLA_INET6_CONF, see <linux/ipv6.h>.
const devconfDisableIPv6 = 26

// ipv6Disabled reads IFLA_AF_SPEC: addrgenmode none and disable_ipv6.
func ipv6Disabled(m []byte) bool {
	if len(m) < unix.SizeofIfInfomsg {
		return false
	}
	inet6 := nested(m[unix.SizeofIfInfomsg:], unix.IFLA_AF_SPEC, unix.AF_INET6)
	if inet6 == nil {
		return true // no IPv6 in this kernel, or an MTU below 1280
	}
	attrs, err := attributes(inet6, 0)
	if err != nil {
		return false
	}
	var disabled, none bool
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.IFLA_INET6_CONF:
			const at = 4 * devconfDisableIPv6
			disabled = len(a.Value) >= at+4 && nl.NativeEndian().Uint32(a.Value[at:]) != 0
		case unix.IFLA_INET6_ADDR_GEN_MODE:
			none = len(a.Value) > 0 && a.Value[0] == nl.IN6_ADDR_GEN_MODE_NONE
		}
	}
	return disabled && none
}

// nested finds an attribute inside of another.
func nested(data []byte, path ...uint16) []byte {
	for _, kind := range path {
		attrs, err := attributes(data, 0)
		if err != nil {
			return nil
		}
		i := slices.IndexFunc(attrs, func(a syscall.NetlinkRouteAttr) bool { return a.Attr.Type&^unix.NLA_F_NESTED == kind })
		if i < 0 {
			return nil
		}
		data = attrs[i].Value
	}
	return data
}

// attributes reads what follows a message's header. The library takes for granted that the
// last attribute is padded and the header whole.
func attributes(m []byte, header int) ([]syscall.NetlinkRouteAttr, error) {
	if len(m) < header {
		return nil, unix.EINVAL
	}
	data := slices.Clone(m[header:])
	for len(data)%unix.RTA_ALIGNTO != 0 {
		data = append(data, 0)
	}
	return nl.ParseRouteAttr(data)
}
