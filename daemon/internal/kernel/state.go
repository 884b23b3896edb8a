// SPDX-License-Identifier: Apache-2.0

package kernel

import (
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

	"github.com/patchbay-cni/patchbay/daemon/internal/sysfs"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// linkSnapshot has the host's links, in the kernel's order.
type linkSnapshot struct {
	links     []*hostLink
	byIndex   map[int]*hostLink
	hasVXLANs bool
}

// readSnapshot lists links, addresses, qdiscs with the filters in them and, when there are
// managed VXLANs, forwarding entries: each once.
func readSnapshot(c *conn) (*linkSnapshot, error) {
	s := &linkSnapshot{byIndex: map[int]*hostLink{}}
	for _, read := range []func(*conn) error{s.readLinks, s.readAddresses, s.readPeers, s.readTagFilters} {
		if err := read(c); err != nil {
			return nil, err
		}
	}
	return s, nil
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

// devconfDisableIPv6 is the index of disable_ipv6 in IFLA_INET6_CONF, see <linux/ipv6.h>.
const devconfDisableIPv6 = 26

// ipv6Disabled reports whether IFLA_AF_SPEC has addrgenmode none and disable_ipv6.
func ipv6Disabled(m []byte) bool {
	if len(m) < unix.SizeofIfInfomsg {
		return false
	}
	inet6 := nestedAttribute(m[unix.SizeofIfInfomsg:], unix.IFLA_AF_SPEC, unix.AF_INET6)
	if inet6 == nil {
		return true // the kernel has no IPv6, or the MTU is below 1280
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

// readAddresses reads which links have addresses, and the global addresses.
func (s *linkSnapshot) readAddresses(c *conn) error {
	msgs, err := c.dump(unix.RTM_GETADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC))
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, m := range msgs {
		head := nl.DeserializeIfAddrmsg(m)
		l := s.byIndex[int(head.Index)]
		if l == nil {
			continue // the link is newer than the list of links
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

// readPeers reads the VTEPs of managed VXLANs: those of default entries, which get broadcasts, and
// those that single MACs were learned from.
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
		case !slices.Contains(l.learned, e.vtep): // except in an attack, there is at most one per node
			l.learned = append(l.learned, e.vtep)
		}
	}
	for _, l := range s.links {
		slices.SortFunc(l.peers, netip.Addr.Compare)
		slices.SortFunc(l.learned, netip.Addr.Compare)
	}
	return nil
}

// readTagFilters reads which links have the tag filter: one list of qdiscs, one of the block's
// filters, and two for each NIC that has a clsact qdisc.
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
		case l == nil: // the link is newer than the list of links
		case !isManaged(l.Attrs()):
			if l.tagsFiltered, err = (tagFilters{c}).present(l.Attrs().Index, nicTagFilters()...); err != nil {
				return fmt.Errorf("list filters of %s: %w", l.Attrs().Name, err)
			}
		case bindsTagBlock(m):
			members = append(members, l)
		}
	}
	if len(members) == 0 {
		return nil
	}
	present, err := (tagFilters{c}).present(blockIfindex, blockTagFilter())
	if err != nil {
		return fmt.Errorf("list filters of block %d: %w", sharedTagBlock, err)
	}
	for _, l := range members {
		l.tagsFiltered = present
	}
	return nil
}

// toState converts the snapshot to NICs, and VLAN and VXLAN links.
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

// observedLink describes a VLAN or VXLAN link; it returns false for other links.
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
			return f, false // a VXLAN with another port has another identity
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

// nic describes a link that Patchbay does not manage. It reads driver and speed of cards and bonds
// only: a node can have hundreds of Pods' veths.
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
		describeCard(sysfs.FS{Root: sysfs.DefaultRoot}, &n)
	}
	return n
}

// describeCard sets what sysfs has about a NIC. It reads the functions of physical functions only: a node
// can have hundreds of functions.
func describeCard(s sysfs.FS, n *netwatcher.NIC) {
	dir := filepath.Join(s.Root, "class/net", n.Name)
	n.VF = isVirtualFunction(dir)
	n.Speed = max(0, readSysfsNumber(dir, "speed")) // -1 is unknown
	if driver, err := os.Readlink(filepath.Join(dir, "device/driver")); err == nil {
		n.Driver = filepath.Base(driver)
	}
	total, number := readSysfsNumber(dir, "device/sriov_totalvfs"), readSysfsNumber(dir, "device/sriov_numvfs")
	if n.Representor = total > 0 && s.IsRepresentor(n.Name); n.Representor {
		return // the device is that of the physical function
	}
	n.TotalVFs, n.NumVFs = total, number
	if total > 0 {
		n.PCIAddress = s.Address(n.Name)
	}
	if number == 0 {
		return
	}
	functions, _ := s.Functions(n.Name) // like all of these files, they cannot be read while the device goes
	for _, f := range functions {
		n.Functions = append(n.Functions, netwatcher.VirtualFunction{
			Index: f.Index, Address: f.Address, Driver: f.Driver, Userspace: f.Userspace(), Representor: f.Representor,
		})
	}
}

// hostLink is a link of the host, with its values of the other lists.
type hostLink struct {
	netlink.Link
	ipv6Disabled    bool
	hasAddress      bool
	tagsFiltered    bool
	globalAddresses []netip.Prefix
	peers           []netip.Addr
	learned         []netip.Addr
}

// kind is the kernel's link kind, empty for none, which the library calls "device".
func (l *hostLink) kind() string {
	if kind := l.Type(); kind != "device" {
		return kind
	}
	return ""
}

// isVirtualFunction reports whether the NIC's device is a virtual function of another.
func isVirtualFunction(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, "device/physfn"))
	return err == nil
}

// readSysfsNumber reads a number from sysfs; it returns 0 if it cannot.
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
