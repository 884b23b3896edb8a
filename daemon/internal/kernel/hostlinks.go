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

// HostLinks are the links of the host: those that Patchbay makes, and the NICs below them.
type HostLinks struct {
	ns        *netNamespace
	conn      *conn
	locks     *keyedMutex
	tags      tagFilters
	sandboxes *Sandboxes
}

// Apply implements netwatcher.Kernel. It holds the link's lock, so that no slave is created on
// a link that is being deleted.
func (h *HostLinks) Apply(_ context.Context, c netwatcher.Change) error {
	unlock := h.locks.lock(c.Link.Name)
	defer unlock()
	switch c.Op {
	case netwatcher.OpSetUp:
		return h.setNICUp(c.Link.Device)
	case netwatcher.OpDelete:
		return h.deleteHostLink(c.Link.Name, c.OnlyUnfinished)
	case netwatcher.OpCreate:
		return h.createHostLink(&c.Link)
	case netwatcher.OpUpdate:
		return h.updateHostLink(&c.Link)
	case netwatcher.OpFilterTags:
		return h.tags.install(&c.Link)
	case netwatcher.OpAllowTags:
		return h.tags.remove(&c.Link)
	case netwatcher.OpUpdatePeers, netwatcher.OpFlushLearned:
		link, err := h.managedLink(c.Link.Name)
		if err != nil {
			return err
		}
		if c.Op == netwatcher.OpFlushLearned {
			return h.conn.flushLearned(link.Attrs().Index, c.Drop)
		}
		return h.conn.updatePeers(link.Attrs().Index, c.Add, c.Drop)
	}
	return fmt.Errorf("%w: operation %q is unknown", ErrInvalid, c.Op)
}

func (h *HostLinks) setNICUp(name string) error {
	link, err := h.conn.linkByName(name)
	if err != nil {
		return err
	}
	if err := h.conn.setLink(link.Attrs().Index, true); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return nil
}

// deleteHostLink deletes a link; with onlyUnfinished, only if it is still unfinished.
func (h *HostLinks) deleteHostLink(name string, onlyUnfinished bool) error {
	link, err := h.managedLink(name)
	if errors.Is(err, errLinkNotFound) {
		return nil
	}
	if err != nil || onlyUnfinished && !isUnfinished(link.Attrs()) {
		return err
	}
	return h.conn.deleteLink(link.Attrs().Index)
}

// createHostLink creates the link, and deletes it again if it cannot be finished.
func (h *HostLinks) createHostLink(s *netwatcher.Spec) error {
	if !isValidLinkName(s.Name) {
		return fmt.Errorf("%w: link name %q: %s", ErrInvalid, s.Name, linkNameRule)
	}
	parent, err := h.conn.linkIndex(s.Device)
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%s: %w", s.Device, ErrParentMissing)
	}
	if err != nil {
		return err
	}
	err = h.conn.send(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
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
	index, err := h.conn.linkIndex(s.Name)
	if err != nil {
		return err
	}
	if err := h.finishHostLink(s, index); err != nil {
		return errors.Join(err, h.conn.deleteLink(index))
	}
	return nil
}

// finishHostLink sets the alias and disables IPv6 before it sets the link up: the node itself must
// not send a packet on it.
func (h *HostLinks) finishHostLink(s *netwatcher.Spec, index int) error {
	attrs := append(finishAttributes(s.Identity.String()), addrGenModeNone())
	if err := h.conn.setLink(index, false, attrs...); err != nil {
		return fmt.Errorf("set the alias: %w", err)
	}
	if err := h.ns.do(disableIPv6(s.Name).write); err != nil {
		return err
	}
	if err := h.conn.updatePeers(index, s.Peers, nil); err != nil {
		return err
	}
	if err := h.conn.setLink(index, true); err != nil {
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
	// The link learns the VTEPs of MACs from the frames that it receives.
	data.AddRtAttr(nl.IFLA_VXLAN_LEARNING, nl.Uint8Attr(1))
	data.AddRtAttr(vxlanLocalAttribute(s.Local), s.Local.AsSlice())
	return info
}

// updateHostLink restores MTU, VTEP and settings of a managed link, and sets it up.
func (h *HostLinks) updateHostLink(s *netwatcher.Spec) error {
	link, err := h.managedLink(s.Name)
	if err != nil {
		return err
	}
	index := link.Attrs().Index
	if err := h.deleteAddresses(index); err != nil {
		return err
	}
	attrs := []nl.NetlinkRequestData{addrGenModeNone()}
	if vtepChanged(link, s.Local) {
		attrs = append(attrs, vtepLinkInfo(s.Local))
	}
	if link.Attrs().MTU != s.MTU {
		attrs = append(attrs, nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(s.MTU))))
	}
	if err := h.conn.setLink(index, false, attrs...); err != nil {
		return fmt.Errorf("set mtu %d: %w", s.MTU, err)
	}
	if err := h.ns.do(disableIPv6(s.Name).write); err != nil {
		return err
	}
	if err := h.conn.setLink(index, true); err != nil {
		return fmt.Errorf("set up: %w", explainVXLANUpError(err))
	}
	return nil
}

// deleteAddresses deletes all addresses of a managed link, which has none by itself.
func (h *HostLinks) deleteAddresses(index int) error {
	msgs, err := h.conn.dump(unix.RTM_GETADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC))
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
		if err := h.conn.deleteAddress(index, a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return err
		}
	}
	return nil
}

// vtepChanged reports whether a VXLAN should send from another address of the same family, as
// its NIC's address changed. The kernel changes it in place.
func vtepChanged(link netlink.Link, local netip.Addr) bool {
	v, ok := link.(*netlink.Vxlan)
	if !ok || !local.IsValid() {
		return false
	}
	current, _ := netip.AddrFromSlice(v.SrcAddr)
	return current.Unmap() != local && current.Unmap().Is4() == local.Is4()
}

// vtepLinkInfo is the IFLA_LINKINFO that changes a VXLAN's local address.
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

// addrGenModeNone is the attribute of "addrgenmode none": the kernel adds no link-local address.
func addrGenModeNone() *nl.RtAttr {
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	inet6 := spec.AddRtAttr(unix.AF_INET6, nil)
	inet6.AddRtAttr(unix.IFLA_INET6_ADDR_GEN_MODE, []byte{nl.IN6_ADDR_GEN_MODE_NONE})
	return spec
}

// explainVXLANUpError explains why a VXLAN cannot be set up.
func explainVXLANUpError(err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("UDP port %d is another program's, or that of a VXLAN without an ID of its own (external): give that one another port: %w",
			vxlanPort, err)
	}
	return err
}

// State implements netwatcher.Kernel.
func (h *HostLinks) State(context.Context) (*netwatcher.State, error) {
	s, err := readSnapshot(h.conn)
	if err != nil {
		return nil, err
	}
	return s.toState(), nil
}

// LinksInUse implements netwatcher.Kernel.
func (h *HostLinks) LinksInUse(ctx context.Context) (map[string]bool, error) {
	return h.sandboxes.LinksInUse(ctx)
}

// Watch implements netwatcher.Kernel; see watchLinks.
func (h *HostLinks) Watch(ctx context.Context, changed func(link string)) error {
	return watchLinks(ctx, h.ns, changed)
}

// RemoveTagFilters removes the tag filters of all NICs, for a node that Patchbay leaves.
func (h *HostLinks) RemoveTagFilters(ctx context.Context) error {
	state, err := h.State(ctx)
	if err != nil {
		return err
	}
	return h.tags.removeAll(state.NICs)
}

// managedLink returns a link, if Patchbay manages it.
func (h *HostLinks) managedLink(name string) (netlink.Link, error) {
	link, err := h.conn.linkByName(name)
	if err != nil {
		return nil, err
	}
	if !isManaged(link.Attrs()) {
		return nil, fmt.Errorf("%s is not a link of Patchbay's: %w", name, ErrNameTaken)
	}
	return link, nil
}

var _ netwatcher.Kernel = (*HostLinks)(nil)
