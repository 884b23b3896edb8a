// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// updatePeers adds and deletes default forwarding entries of a VXLAN.
func (c *conn) updatePeers(index int, add, drop []netip.Addr) error {
	for _, a := range add {
		err := c.send(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_APPEND, fdbMessage(index, net.HardwareAddr(zeroMAC), a)...)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add forwarding entry to %s: %w", a, err)
		}
	}
	for _, a := range drop {
		err := c.send(unix.RTM_DELNEIGH, 0, fdbMessage(index, net.HardwareAddr(zeroMAC), a)...)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("delete forwarding entry to %s: %w", a, err)
		}
	}
	return nil
}

// flushLearned deletes the forwarding entries of single MACs that were learned from the VTEPs.
func (c *conn) flushLearned(index int, vteps []netip.Addr) error {
	msgs, err := c.dump(unix.RTM_GETNEIGH, nl.NewIfInfomsg(unix.AF_BRIDGE))
	if err != nil {
		return fmt.Errorf("list forwarding entries: %w", err)
	}
	for _, m := range msgs {
		e, ok := parseFDBEntry(m)
		if !ok || e.index != index || e.isDefault() || !slices.Contains(vteps, e.vtep) {
			continue
		}
		err := c.send(unix.RTM_DELNEIGH, 0, fdbMessage(index, e.mac, e.vtep)...)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("delete forwarding entry of %s to %s: %w", e.mac, e.vtep, err)
		}
	}
	return nil
}

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
