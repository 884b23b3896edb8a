// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// allZero is the address of a VXLAN's default entries: what has no entry of its
// own, broadcasts above all, goes to each of them (head-end replication).
var allZero = make([]byte, 6)

// setPeers adds and removes default entries.
func (c *conn) setPeers(index int, add, drop []netip.Addr) error {
	for _, a := range add {
		err := c.send(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_APPEND, peerMessage(index, a)...)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add forwarding entry to %s: %w", a, err)
		}
	}
	for _, a := range drop {
		err := c.send(unix.RTM_DELNEIGH, 0, peerMessage(index, a)...)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("delete forwarding entry to %s: %w", a, err)
		}
	}
	return nil
}

func peerMessage(index int, vtep netip.Addr) []nl.NetlinkRequestData {
	return []nl.NetlinkRequestData{
		&netlink.Ndmsg{
			Family: unix.AF_BRIDGE, Index: uint32(index),
			State: unix.NUD_PERMANENT | unix.NUD_NOARP, Flags: unix.NTF_SELF,
		},
		nl.NewRtAttr(unix.NDA_LLADDR, allZero),
		nl.NewRtAttr(unix.NDA_DST, vtep.AsSlice()),
	}
}

// readPeer reads a forwarding entry; false is one of a learned address.
func readPeer(m []byte) (index int, vtep netip.Addr, ok bool) {
	n, err := netlink.NeighDeserialize(m)
	if err != nil || string(n.HardwareAddr) != string(allZero) {
		return 0, netip.Addr{}, false
	}
	vtep, ok = netip.AddrFromSlice(n.IP)
	return n.LinkIndex, vtep.Unmap(), ok
}
