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
	unlock := k.parents.lock(c.Link.Name)
	defer unlock()
	switch c.Op {
	case netwatcher.Raise:
		return k.raise(c.Link.Device)
	case netwatcher.Delete:
		return k.deleteOurs(c.Link.Name, c.HalfMade)
	case netwatcher.Create:
		return k.createHostLink(&c.Link)
	case netwatcher.Update:
		return k.updateHostLink(&c.Link)
	case netwatcher.Untag:
		return k.dropTags(&c.Link)
	case netwatcher.Trunk:
		return k.passTags(&c.Link)
	case netwatcher.Peer, netwatcher.Forget:
		link, err := k.findOurs(c.Link.Name)
		if err != nil {
			return err
		}
		if c.Op == netwatcher.Forget {
			return k.host.forget(link.Attrs().Index, c.Drop)
		}
		return k.host.setPeers(link.Attrs().Index, c.Add, c.Drop)
	}
	return fmt.Errorf("%w: step %q", ErrInvalid, c.Op)
}

func (k *Kernel) raise(name string) error {
	link, err := k.host.linkByName(name)
	if err != nil {
		return err
	}
	if err := k.host.setLink(link.Attrs().Index, true); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return nil
}

// deleteOurs removes a link; with onlyHalf only one that was not finished meanwhile.
func (k *Kernel) deleteOurs(name string, onlyHalf bool) error {
	link, err := k.findOurs(name)
	if errors.Is(err, errNoLink) {
		return nil
	}
	if err != nil || onlyHalf && !halfMade(link.Attrs()) {
		return err
	}
	return k.host.deleteLink(link.Attrs().Index)
}

// createHostLink makes the link and removes it again when it cannot be finished.
func (k *Kernel) createHostLink(s *netwatcher.Spec) error {
	if !validName(s.Name) {
		return fmt.Errorf("%w: link name %q", ErrInvalid, s.Name)
	}
	parent, err := k.host.index(s.Device)
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%s: %w", s.Device, ErrParentMissing)
	}
	if err != nil {
		return err
	}
	err = k.host.send(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
		nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(s.Name)),
		nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(uint32(parent))),
		nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(s.MTU))),
		nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(birthGroup)),
		hostLinkInfo(s, parent))
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: %w", ErrNameTaken, err)
	}
	if err != nil {
		return err
	}
	index, err := k.host.index(s.Name)
	if err != nil {
		return err
	}
	if err := k.finishHostLink(s, index); err != nil {
		return errors.Join(err, k.host.deleteLink(index))
	}
	return nil
}

// finishHostLink marks and seals the link before it is set up: not one packet is
// to come from the node itself.
func (k *Kernel) finishHostLink(s *netwatcher.Spec, index int) error {
	attrs := append(finish(s.Identity.String()), noLinkLocal())
	if err := k.host.setLink(index, false, attrs...); err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	if err := k.home.inside(disableIPv6(s.Name).write); err != nil {
		return err
	}
	if err := k.host.setPeers(index, s.Peers, nil); err != nil {
		return err
	}
	if err := k.host.setLink(index, true); err != nil {
		return fmt.Errorf("set up: %w", portTaken(err))
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
	data.AddRtAttr(localAttr(s.Local), s.Local.AsSlice())
	return info
}

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

func localAttr(local netip.Addr) int {
	if local.Is4() {
		return nl.IFLA_VXLAN_LOCAL
	}
	return nl.IFLA_VXLAN_LOCAL6
}

// noLinkLocal is addrgenmode none.
func noLinkLocal() *nl.RtAttr {
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	inet6 := spec.AddRtAttr(unix.AF_INET6, nil)
	inet6.AddRtAttr(unix.IFLA_INET6_ADDR_GEN_MODE, []byte{nl.IN6_ADDR_GEN_MODE_NONE})
	return spec
}

// portTaken explains why a VXLAN does not come up.
func portTaken(err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("UDP port %d is another program's, or that of a VXLAN without an ID of its own (external): give that one another port: %w",
			vxlanPort, err)
	}
	return err
}

// findOurs looks a link up and checks its mark.
func (k *Kernel) findOurs(name string) (netlink.Link, error) {
	link, err := k.host.linkByName(name)
	if err != nil {
		return nil, err
	}
	if !ours(link.Attrs()) {
		return nil, fmt.Errorf("%s has no mark of ours: %w", name, ErrNameTaken)
	}
	return link, nil
}
