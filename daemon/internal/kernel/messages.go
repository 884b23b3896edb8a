// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// addressFamily returns AF_INET or AF_INET6.
func addressFamily(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func addressMessage(index int, a netip.Prefix) []nl.NetlinkRequestData {
	msg := nl.NewIfAddrmsg(addressFamily(a.Addr()))
	msg.Index = uint32(index)
	msg.Prefixlen = uint8(a.Bits())
	return []nl.NetlinkRequestData{
		msg,
		nl.NewRtAttr(unix.IFA_LOCAL, a.Addr().AsSlice()),
		nl.NewRtAttr(unix.IFA_ADDRESS, a.Addr().AsSlice()),
	}
}

// parseAddress returns the local address of an RTM_NEWADDR message. On a point-to-point link,
// IFA_ADDRESS is the address of the other end.
func parseAddress(m []byte) (netip.Prefix, error) {
	attrs, err := parseAttributes(m, unix.SizeofIfAddrmsg)
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

// zeroMAC is the MAC of a VXLAN's default entries: a frame without an entry of its own, such as a
// broadcast, is sent to all of them (head-end replication).
const zeroMAC = "\x00\x00\x00\x00\x00\x00"

// fdbEntry is a forwarding entry of a VXLAN: frames to the MAC are sent to the VTEP.
type fdbEntry struct {
	index int
	mac   net.HardwareAddr
	vtep  netip.Addr
}

// isDefault reports whether it is a default entry.
func (e *fdbEntry) isDefault() bool { return string(e.mac) == zeroMAC }

func fdbMessage(index int, mac net.HardwareAddr, vtep netip.Addr) []nl.NetlinkRequestData {
	return []nl.NetlinkRequestData{
		&netlink.Ndmsg{
			Family: unix.AF_BRIDGE, Index: uint32(index),
			State: unix.NUD_PERMANENT | unix.NUD_NOARP, Flags: unix.NTF_SELF,
		},
		nl.NewRtAttr(unix.NDA_LLADDR, mac),
		nl.NewRtAttr(unix.NDA_DST, vtep.AsSlice()),
	}
}

// parseFDBEntry parses a forwarding entry; it returns false for one without a VTEP.
func parseFDBEntry(m []byte) (e fdbEntry, ok bool) {
	n, err := netlink.NeighDeserialize(m)
	if err != nil {
		return fdbEntry{}, false
	}
	vtep, ok := netip.AddrFromSlice(n.IP)
	return fdbEntry{index: n.LinkIndex, mac: n.HardwareAddr, vtep: vtep.Unmap()}, ok
}

// nestedAttribute returns the value of an attribute at the path of nested attributes, or nil.
func nestedAttribute(data []byte, path ...uint16) []byte {
	for _, kind := range path {
		attrs, err := parseAttributes(data, 0)
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

// parseAttributes parses the attributes after a message's header. The library requires that the
// last attribute is padded and the header is complete.
func parseAttributes(m []byte, header int) ([]syscall.NetlinkRouteAttr, error) {
	if len(m) < header {
		return nil, unix.EINVAL
	}
	data := slices.Clone(m[header:])
	for len(data)%unix.RTA_ALIGNTO != 0 {
		data = append(data, 0)
	}
	return nl.ParseRouteAttr(data)
}
