// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

// vxlanPort is VXLAN's UDP port (RFC 7348, 8).
const vxlanPort = 4789

// noLinkLocal is addrgenmode none.
func noLinkLocal() *nl.RtAttr {
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	inet6 := spec.AddRtAttr(unix.AF_INET6, nil)
	inet6.AddRtAttr(unix.IFLA_INET6_ADDR_GEN_MODE, []byte{nl.IN6_ADDR_GEN_MODE_NONE})
	return spec
}

// hostLinkInfo is the IFLA_LINKINFO of a VLAN or VXLAN link.
func hostLinkInfo(s *netwatcher.Spec, parent int) *nl.RtAttr {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	if s.Identity.VXLAN == 0 {
		info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("vlan"))
		data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
		data.AddRtAttr(nl.IFLA_VLAN_ID, nl.Uint16Attr(uint16(s.Identity.VLAN)))
		return info
	}
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("vxlan"))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	data.AddRtAttr(nl.IFLA_VXLAN_ID, nl.Uint32Attr(uint32(s.Identity.VXLAN)))
	data.AddRtAttr(nl.IFLA_VXLAN_LINK, nl.Uint32Attr(uint32(parent)))
	data.AddRtAttr(nl.IFLA_VXLAN_PORT, binary.BigEndian.AppendUint16(nil, vxlanPort))
	// Unicast finds its node by learning from what the others send.
	data.AddRtAttr(nl.IFLA_VXLAN_LEARNING, nl.Uint8Attr(1))
	data.AddRtAttr(localAttr(s.Local), s.Local.AsSlice())
	return info
}

func localAttr(local netip.Addr) int {
	if local.Is4() {
		return nl.IFLA_VXLAN_LOCAL
	}
	return nl.IFLA_VXLAN_LOCAL6
}
