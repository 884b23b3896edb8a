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
