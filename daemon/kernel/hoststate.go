// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/patchbay-cni/patchbay/netwatcher"
	"github.com/patchbay-cni/patchbay/network"
)

var _ netwatcher.Kernel = (*Kernel)(nil)

// State reads the host's links: one list of links, one of addresses, one of qdiscs with
// the filters in them, and, when there are VXLANs of ours, one of forwarding entries.
func (k *Kernel) State(_ context.Context) (*netwatcher.State, error) {
	s := &reading{byIndex: map[int]*hostLink{}}
	if err := s.readLinks(k.host); err != nil {
		return nil, err
	}
	if err := s.readAddresses(k.host); err != nil {
		return nil, err
	}
	if err := s.readPeers(k.host); err != nil {
		return nil, err
	}
	if err := s.readTags(k.host); err != nil {
		return nil, err
	}
	return s.state(), nil
}

// hostLink is a link of the host with what other lists say of it.
type hostLink struct {
	netlink.Link
	noIPv6    bool
	addressed bool
	untagged  bool
	global    []netip.Prefix
	peers     []netip.Addr
	learned   []netip.Addr
}

// reading is the host's links in the kernel's order.
type reading struct {
	links   []*hostLink
	byIndex map[int]*hostLink
	vxlans  bool
}

func (s *reading) readLinks(c *conn) error {
	msgs, err := c.listLinks()
	if err != nil {
		return err
	}
	for _, m := range msgs {
		link, err := netlink.LinkDeserialize(nil, m)
		if err != nil {
			return fmt.Errorf("read a link: %w", err)
		}
		l := &hostLink{Link: link, noIPv6: ipv6Disabled(m)}
		s.links = append(s.links, l)
		s.byIndex[link.Attrs().Index] = l
		s.vxlans = s.vxlans || link.Type() == "vxlan" && ours(link.Attrs())
	}
	return nil
}

// state sorts the links into NICs and VLANs and VXLANs.
func (s *reading) state() *netwatcher.State {
	state := &netwatcher.State{}
	for _, l := range s.links {
		a := l.Attrs()
		f, virtual := s.found(l)
		if virtual {
			state.Links = append(state.Links, f)
		}
		if !ours(a) && a.Flags&net.FlagLoopback == 0 {
			state.NICs = append(state.NICs, s.nic(l))
		}
	}
	return state
}

// found reads a VLAN or VXLAN link; others are none.
func (s *reading) found(l *hostLink) (netwatcher.Found, bool) {
	a := l.Attrs()
	f := netwatcher.Found{
		Spec:     netwatcher.Spec{Name: a.Name, MTU: a.MTU, Peers: l.peers},
		Learned:  l.learned,
		Ours:     ours(a),
		HalfMade: halfMade(a),
		Up:       a.Flags&net.FlagUp != 0,
		Sealed:   l.noIPv6 && !l.addressed,
		Untagged: l.untagged,
		MAC:      a.HardwareAddr,
	}
	switch link := l.Link.(type) {
	case *netlink.Vlan:
		f.Device = s.name(a.ParentIndex)
		f.Identity = network.Link{Device: f.Device, VLAN: link.VlanId}
	case *netlink.Vxlan:
		if !f.Ours && link.Port != vxlanPort {
			return f, false // another port is another identity
		}
		f.Device = s.name(link.VtepDevIndex)
		f.Identity = network.Link{VXLAN: link.VxlanId}
		f.Local, _ = netip.AddrFromSlice(link.SrcAddr)
		f.Local = f.Local.Unmap()
	default:
		return f, false
	}
	return f, true
}

func (s *reading) name(index int) string {
	if l := s.byIndex[index]; l != nil {
		return l.Attrs().Name
	}
	return ""
}
