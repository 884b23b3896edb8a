// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

// Apply takes one step of netwatcher's. It holds the link's lock, so that no
// slave is made on a link that goes.
func (k *Kernel) Apply(_ context.Context, c netwatcher.Change) error {
	unlock := k.linkLocks.lock(c.Link.Name)
	defer unlock()
	switch c.Op {
	case netwatcher.OpSetUp:
		return k.setNICUp(c.Link.Device)
	case netwatcher.OpDelete:
		return k.deleteHostLink(c.Link.Name, c.OnlyUnfinished)
	case netwatcher.OpCreate:
		return k.createHostLink(&c.Link)
	case netwatcher.OpUpdate:
		return k.updateHostLink(&c.Link)
	case netwatcher.OpFilterTags:
		return k.installTagFilter(&c.Link)
	case netwatcher.OpAllowTags:
		return k.removeTagFilter(&c.Link)
	case netwatcher.OpUpdatePeers, netwatcher.OpFlushLearned:
		link, err := k.managedLink(c.Link.Name)
		if err != nil {
			return err
		}
		if c.Op == netwatcher.OpFlushLearned {
			return k.hostConn.flushLearned(link.Attrs().Index, c.Drop)
		}
		return k.hostConn.updatePeers(link.Attrs().Index, c.Add, c.Drop)
	}
	return fmt.Errorf("%w: step %q", ErrInvalid, c.Op)
}

func (k *Kernel) setNICUp(name string) error {
	link, err := k.hostConn.linkByName(name)
	if err != nil {
		return err
	}
	if err := k.hostConn.setLink(link.Attrs().Index, true); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return nil
}

// deleteHostLink removes a link; with onlyHalf only one that was not finished meanwhile.
func (k *Kernel) deleteHostLink(name string, onlyHalf bool) error {
	link, err := k.managedLink(name)
	if errors.Is(err, errLinkNotFound) {
		return nil
	}
	if err != nil || onlyHalf && !isUnfinished(link.Attrs()) {
		return err
	}
	return k.hostConn.deleteLink(link.Attrs().Index)
}

// createHostLink makes the link and removes it again when it cannot be finished.
func (k *Kernel) createHostLink(s *netwatcher.Spec) error {
	if !isValidLinkName(s.Name) {
		return fmt.Errorf("%w: link name %q", ErrInvalid, s.Name)
	}
	parent, err := k.hostConn.linkIndex(s.Device)
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%s: %w", s.Device, ErrParentMissing)
	}
	if err != nil {
		return err
	}
	err = k.hostConn.send(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
		nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(s.Name)),
		nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(uint32(parent))),
		nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(s.MTU))),
		nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(unfinishedGroup)),
		hostLinkInfo(s, parent))
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: %w", ErrNameTaken, err)
	}
	if err != nil {
		return err
	}
	index, err := k.hostConn.linkIndex(s.Name)
	if err != nil {
		return err
	}
	if err := k.finishHostLink(s, index); err != nil {
		return errors.Join(err, k.hostConn.deleteLink(index))
	}
	return nil
}

// finishHostLink marks and seals the link before it is set up: not one packet is
// to come from the node itself.
func (k *Kernel) finishHostLink(s *netwatcher.Spec, index int) error {
	attrs := append(finishAttributes(s.Identity.String()), addrGenModeNone())
	if err := k.hostConn.setLink(index, false, attrs...); err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	if err := k.hostNS.do(disableIPv6(s.Name).write); err != nil {
		return err
	}
	if err := k.hostConn.updatePeers(index, s.Peers, nil); err != nil {
		return err
	}
	if err := k.hostConn.setLink(index, true); err != nil {
		return fmt.Errorf("set up: %w", explainVXLANUpError(err))
	}
	return nil
}

// vxlanPort is VXLAN's UDP port (RFC 7348, 8).
const vxlanPort = 4789

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
	data.AddRtAttr(vxlanLocalAttribute(s.Local), s.Local.AsSlice())
	return info
}

// updateHostLink brings a link of ours back to what it was made as.
func (k *Kernel) updateHostLink(s *netwatcher.Spec) error {
	link, err := k.managedLink(s.Name)
	if err != nil {
		return err
	}
	index := link.Attrs().Index
	if err := k.deleteAddresses(index); err != nil {
		return err
	}
	attrs := []nl.NetlinkRequestData{addrGenModeNone()}
	if vtepChanged(link, s.Local) {
		attrs = append(attrs, vtepLinkInfo(s.Local))
	}
	if link.Attrs().MTU != s.MTU {
		attrs = append(attrs, nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(s.MTU))))
	}
	if err := k.hostConn.setLink(index, false, attrs...); err != nil {
		return fmt.Errorf("set mtu %d: %w", s.MTU, err)
	}
	if err := k.hostNS.do(disableIPv6(s.Name).write); err != nil {
		return err
	}
	if err := k.hostConn.setLink(index, true); err != nil {
		return fmt.Errorf("set up: %w", explainVXLANUpError(err))
	}
	return nil
}

// deleteAddresses takes off what somebody put on a link of ours.
func (k *Kernel) deleteAddresses(index int) error {
	msgs, err := k.hostConn.dump(unix.RTM_GETADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC))
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, m := range msgs {
		if int(nl.DeserializeIfAddrmsg(m).Index) != index {
			continue
		}
		a, err := parseAddress(m)
		if err != nil {
			return err
		}
		if err := k.hostConn.deleteAddress(index, a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return err
		}
	}
	return nil
}

// vtepChanged reports whether a VXLAN sends from another address of the same family
// than it should: its NIC has another one now. The kernel changes that in place, and
// nothing that worked is cut.
func vtepChanged(link netlink.Link, local netip.Addr) bool {
	v, ok := link.(*netlink.Vxlan)
	if !ok || !local.IsValid() {
		return false
	}
	now, _ := netip.AddrFromSlice(v.SrcAddr)
	return now.Unmap() != local && now.Unmap().Is4() == local.Is4()
}

// vtepLinkInfo is the IFLA_LINKINFO that changes a VXLAN's own address.
func vtepLinkInfo(local netip.Addr) *nl.RtAttr {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("vxlan"))
	info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(vxlanLocalAttribute(local), local.AsSlice())
	return info
}

func vxlanLocalAttribute(local netip.Addr) int {
	if local.Is4() {
		return nl.IFLA_VXLAN_LOCAL
	}
	return nl.IFLA_VXLAN_LOCAL6
}

// addrGenModeNone is addrgenmode none.
func addrGenModeNone() *nl.RtAttr {
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	inet6 := spec.AddRtAttr(unix.AF_INET6, nil)
	inet6.AddRtAttr(unix.IFLA_INET6_ADDR_GEN_MODE, []byte{nl.IN6_ADDR_GEN_MODE_NONE})
	return spec
}

// explainVXLANUpError explains why a VXLAN does not come up.
func explainVXLANUpError(err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("UDP port %d is another program's, or that of a VXLAN without an ID of its own (external): give that one another port: %w",
			vxlanPort, err)
	}
	return err
}

// managedLink looks a link up and checks its mark.
func (k *Kernel) managedLink(name string) (netlink.Link, error) {
	link, err := k.hostConn.linkByName(name)
	if err != nil {
		return nil, err
	}
	if !isManaged(link.Attrs()) {
		return nil, fmt.Errorf("%s has no mark of ours: %w", name, ErrNameTaken)
	}
	return link, nil
}
