// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// State reads the host's links: one list of links, one of addresses, one of qdiscs with
// the filters in them, and, when there are VXLANs of ours, one of forwarding entries.
func (k *Kernel) State(_ context.Context) (*netwatcher.State, error) {
	s := &linkSnapshot{byIndex: map[int]*hostLink{}}
	if err := s.readLinks(k.hostConn); err != nil {
		return nil, err
	}
	if err := s.readAddresses(k.hostConn); err != nil {
		return nil, err
	}
	if err := s.readPeers(k.hostConn); err != nil {
		return nil, err
	}
	if err := s.readTagFilters(k.hostConn); err != nil {
		return nil, err
	}
	return s.toState(), nil
}

// linkSnapshot is the host's links in the kernel's order.
type linkSnapshot struct {
	links     []*hostLink
	byIndex   map[int]*hostLink
	hasVXLANs bool
}

func (s *linkSnapshot) readLinks(c *conn) error {
	msgs, err := c.listLinks()
	if err != nil {
		return err
	}
	for _, m := range msgs {
		link, err := netlink.LinkDeserialize(nil, m)
		if err != nil {
			return fmt.Errorf("read a link: %w", err)
		}
		l := &hostLink{Link: link, ipv6Disabled: ipv6Disabled(m)}
		s.links = append(s.links, l)
		s.byIndex[link.Attrs().Index] = l
		s.hasVXLANs = s.hasVXLANs || link.Type() == "vxlan" && isManaged(link.Attrs())
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
	inet6 := nestedAttribute(m[unix.SizeofIfInfomsg:], unix.IFLA_AF_SPEC, unix.AF_INET6)
	if inet6 == nil {
		return true // no IPv6 in this kernel, or an MTU below 1280
	}
	attrs, err := parseAttributes(inet6, 0)
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

// readAddresses notes which links have addresses, and the global ones.
func (s *linkSnapshot) readAddresses(c *conn) error {
	msgs, err := c.dump(unix.RTM_GETADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC))
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, m := range msgs {
		head := nl.DeserializeIfAddrmsg(m)
		l := s.byIndex[int(head.Index)]
		if l == nil {
			continue // newer than the list of links
		}
		l.hasAddress = true
		a, err := parseAddress(m)
		if err != nil {
			return err
		}
		if head.Scope == unix.RT_SCOPE_UNIVERSE && a.Addr().IsGlobalUnicast() {
			l.globalAddresses = append(l.globalAddresses, a)
		}
	}
	return nil
}

// readPeers notes the VTEPs that get broadcasts of our VXLANs, which are the forwarding
// entries of the all-zero address, and those that the other entries name.
func (s *linkSnapshot) readPeers(c *conn) error {
	if !s.hasVXLANs {
		return nil
	}
	head := nl.NewIfInfomsg(unix.AF_BRIDGE)
	msgs, err := c.dump(unix.RTM_GETNEIGH, head)
	if err != nil {
		return fmt.Errorf("list forwarding entries: %w", err)
	}
	for _, m := range msgs {
		e, ok := parseFDBEntry(m)
		l := s.byIndex[e.index]
		switch {
		case !ok || l == nil:
		case e.isDefault():
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

// readTagFilters notes which links have the filter: one list of qdiscs, one of the block's filters,
// and two for each NIC that has a clsact.
func (s *linkSnapshot) readTagFilters(c *conn) error {
	msgs, err := c.dump(unix.RTM_GETQDISC, &nl.TcMsg{Family: unix.AF_UNSPEC})
	if err != nil {
		return fmt.Errorf("list qdiscs: %w", err)
	}
	var members []*hostLink
	for _, m := range msgs {
		if !isClsact(m) {
			continue
		}
		l := s.byIndex[int(nl.DeserializeTcMsg(m).Ifindex)]
		switch {
		case l == nil: // newer than the list of links
		case !isManaged(l.Attrs()):
			if l.tagsFiltered, err = c.hasTagFilters(l.Attrs().Index, nicTagFilters()...); err != nil {
				return fmt.Errorf("list filters of %s: %w", l.Attrs().Name, err)
			}
		case bindsTagBlock(m):
			members = append(members, l)
		}
	}
	if len(members) == 0 {
		return nil
	}
	there, err := c.hasTagFilters(blockIfindex, blockTagFilter())
	if err != nil {
		return fmt.Errorf("list filters of block %d: %w", sharedTagBlock, err)
	}
	for _, l := range members {
		l.tagsFiltered = there
	}
	return nil
}

// toState sorts the links into NICs and VLANs and VXLANs.
func (s *linkSnapshot) toState() *netwatcher.State {
	state := &netwatcher.State{}
	for _, l := range s.links {
		a := l.Attrs()
		f, virtual := s.observedLink(l)
		if virtual {
			state.Links = append(state.Links, f)
		}
		if !isManaged(a) && a.Flags&net.FlagLoopback == 0 {
			state.NICs = append(state.NICs, s.nic(l))
		}
	}
	return state
}

// observedLink reads a VLAN or VXLAN link; others are none.
func (s *linkSnapshot) observedLink(l *hostLink) (netwatcher.ObservedLink, bool) {
	a := l.Attrs()
	f := netwatcher.ObservedLink{
		Spec:            netwatcher.Spec{Name: a.Name, MTU: a.MTU, Peers: l.peers},
		Learned:         l.learned,
		Managed:         isManaged(a),
		Unfinished:      isUnfinished(a),
		Up:              a.Flags&net.FlagUp != 0,
		HostUnreachable: l.ipv6Disabled && !l.hasAddress,
		TagsFiltered:    l.tagsFiltered,
		MAC:             a.HardwareAddr,
	}
	switch link := l.Link.(type) {
	case *netlink.Vlan:
		f.Device = s.linkName(a.ParentIndex)
		f.Identity = network.Link{Device: f.Device, VLAN: link.VlanId}
	case *netlink.Vxlan:
		if !f.Managed && link.Port != vxlanPort {
			return f, false // another port is another identity
		}
		f.Device = s.linkName(link.VtepDevIndex)
		f.Identity = network.Link{VXLAN: link.VxlanId}
		f.Local, _ = netip.AddrFromSlice(link.SrcAddr)
		f.Local = f.Local.Unmap()
	default:
		return f, false
	}
	return f, true
}

func (s *linkSnapshot) linkName(index int) string {
	if l := s.byIndex[index]; l != nil {
		return l.Attrs().Name
	}
	return ""
}

// nic describes a link that is not ours. Only cards and bonds have a driver and
// a speed worth reading: a node has hundreds of cable ends of Pods.
func (s *linkSnapshot) nic(l *hostLink) netwatcher.NIC {
	a := l.Attrs()
	n := netwatcher.NIC{
		Name: a.Name, Kind: l.kind(), MAC: a.HardwareAddr.String(), MTU: a.MTU,
		Up: a.Flags&net.FlagUp != 0, Addresses: l.globalAddresses, TagsFiltered: l.tagsFiltered,
	}
	n.NoCarrier = n.Up && a.RawFlags&unix.IFF_LOWER_UP == 0
	if master := s.byIndex[a.MasterIndex]; master != nil {
		n.Master, n.MasterKind = master.Attrs().Name, master.kind()
	}
	if n.Kind == "" || n.Kind == "bond" {
		dir := filepath.Join("/sys/class/net", a.Name)
		n.VF = isVirtualFunction(dir)
		n.Speed = max(0, readSysfsNumber(dir, "speed")) // -1: not known
		n.TotalVFs = readSysfsNumber(dir, "device/sriov_totalvfs")
		n.NumVFs = readSysfsNumber(dir, "device/sriov_numvfs")
		if driver, err := os.Readlink(filepath.Join(dir, "device/driver")); err == nil {
			n.Driver = filepath.Base(driver)
		}
	}
	return n
}

// hostLink is a link of the host with what other lists say of it.
type hostLink struct {
	netlink.Link
	ipv6Disabled    bool
	hasAddress      bool
	tagsFiltered    bool
	globalAddresses []netip.Prefix
	peers           []netip.Addr
	learned         []netip.Addr
}

// kind is the kernel's link kind; the library says "device" when there is none.
func (l *hostLink) kind() string {
	if kind := l.Type(); kind != "device" {
		return kind
	}
	return ""
}

// isVirtualFunction reports whether the device of a NIC names a card that it is a part of.
func isVirtualFunction(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, "device/physfn"))
	return err == nil
}

// readSysfsNumber reads a number from sysfs; 0 when it is not there.
func readSysfsNumber(dir, file string) int {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return n
}

var _ netwatcher.Kernel = (*Kernel)(nil)
