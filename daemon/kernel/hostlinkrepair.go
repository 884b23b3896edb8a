// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

// updateHostLink brings a link of ours back to what it was made as.
func (k *Kernel) updateHostLink(s *netwatcher.Spec) error {
	link, err := k.findOurs(s.Name)
	if err != nil {
		return err
	}
	index := link.Attrs().Index
	if err := k.dropAddresses(index); err != nil {
		return err
	}
	attrs := []nl.NetlinkRequestData{noLinkLocal()}
	if vtepMoved(link, s.Local) {
		attrs = append(attrs, newVTEP(s.Local))
	}
	if link.Attrs().MTU != s.MTU {
		attrs = append(attrs, nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(s.MTU))))
	}
	if err := k.host.setLink(index, false, attrs...); err != nil {
		return fmt.Errorf("set mtu %d: %w", s.MTU, err)
	}
	if err := k.home.inside(disableIPv6(s.Name).write); err != nil {
		return err
	}
	if err := k.host.setLink(index, true); err != nil {
		return fmt.Errorf("set up: %w", portTaken(err))
	}
	return nil
}

// vtepMoved reports whether a VXLAN sends from another address of the same family
// than it should: its NIC has another one now. The kernel changes that in place, and
// nothing that worked is cut.
func vtepMoved(link netlink.Link, local netip.Addr) bool {
	v, ok := link.(*netlink.Vxlan)
	if !ok || !local.IsValid() {
		return false
	}
	now, _ := netip.AddrFromSlice(v.SrcAddr)
	return now.Unmap() != local && now.Unmap().Is4() == local.Is4()
}

// newVTEP is the IFLA_LINKINFO that changes a VXLAN's own address.
func newVTEP(local netip.Addr) *nl.RtAttr {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("vxlan"))
	info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(localAttr(local), local.AsSlice())
	return info
}

// portTaken explains why a VXLAN does not come up.
func portTaken(err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("UDP port %d is another program's, or that of a VXLAN without an ID of its own (external): give that one another port: %w",
			vxlanPort, err)
	}
	return err
}

// dropAddresses takes off what somebody put on a link of ours.
func (k *Kernel) dropAddresses(index int) error {
	msgs, err := k.host.list(unix.RTM_GETADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC))
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, m := range msgs {
		if int(nl.DeserializeIfAddrmsg(m).Index) != index {
			continue
		}
		a, err := readAddress(m)
		if err != nil {
			return err
		}
		if err := k.host.deleteAddress(index, a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return err
		}
	}
	return nil
}
