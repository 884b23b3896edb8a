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

// allZero is the address of a VXLAN's default entries: what has no entry of its
// own, broadcasts above all, goes to each of them (head-end replication).
var allZero = make(net.HardwareAddr, 6)

// setPeers adds and removes default entries.
func (c *conn) setPeers(index int, add, drop []netip.Addr) error {
	for _, a := range add {
		err := c.send(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_APPEND, entryMessage(index, allZero, a)...)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add forwarding entry to %s: %w", a, err)
		}
	}
	for _, a := range drop {
		err := c.send(unix.RTM_DELNEIGH, 0, entryMessage(index, allZero, a)...)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("delete forwarding entry to %s: %w", a, err)
		}
	}
	return nil
}

func entryMessage(index int, mac net.HardwareAddr, vtep netip.Addr) []nl.NetlinkRequestData {
	return []nl.NetlinkRequestData{
		&netlink.Ndmsg{
			Family: unix.AF_BRIDGE, Index: uint32(index),
			State: unix.NUD_PERMANENT | unix.NUD_NOARP, Flags: unix.NTF_SELF,
		},
		nl.NewRtAttr(unix.NDA_LLADDR, mac),
		nl.NewRtAttr(unix.NDA_DST, vtep.AsSlice()),
	}
}

// forget removes the entries of single addresses that were learned from the VTEPs.
func (c *conn) forget(index int, vteps []netip.Addr) error {
	msgs, err := c.list(unix.RTM_GETNEIGH, nl.NewIfInfomsg(unix.AF_BRIDGE))
	if err != nil {
		return fmt.Errorf("list forwarding entries: %w", err)
	}
	for _, m := range msgs {
		e, ok := readEntry(m)
		if !ok || e.index != index || e.everything() || !slices.Contains(vteps, e.vtep) {
			continue
		}
		err := c.send(unix.RTM_DELNEIGH, 0, entryMessage(index, e.mac, e.vtep)...)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("delete forwarding entry of %s to %s: %w", e.mac, e.vtep, err)
		}
	}
	return nil
}

// entry is a forwarding entry of a VXLAN.
type entry struct {
	index int
	mac   net.HardwareAddr
	vtep  netip.Addr
}

// everything reports whether it is a default entry.
func (e *entry) everything() bool { return string(e.mac) == string(allZero) }

// readEntry reads a forwarding entry; false is one that names no VTEP.
func readEntry(m []byte) (e entry, ok bool) {
	n, err := netlink.NeighDeserialize(m)
	if err != nil {
		return entry{}, false
	}
	vtep, ok := netip.AddrFromSlice(n.IP)
	return entry{index: n.LinkIndex, mac: n.HardwareAddr, vtep: vtep.Unmap()}, ok
}
