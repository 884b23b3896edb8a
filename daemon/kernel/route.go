// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/network"
)

// addRoute adds r. A route to the same destination that is there already belongs
// to another interface of the Pod, and is not replaced.
func (c *conn) addRoute(r network.Route, index, table int) error {
	msg := nl.NewRtMsg()
	msg.Family = uint8(family(r.Dst.Addr()))
	msg.Dst_len = uint8(r.Dst.Bits())
	msg.Protocol = unix.RTPROT_STATIC
	data := []nl.NetlinkRequestData{
		msg,
		nl.NewRtAttr(unix.RTA_GATEWAY, r.Gateway.AsSlice()),
		nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(index))),
	}
	if r.Dst.Bits() > 0 {
		data = append(data, nl.NewRtAttr(unix.RTA_DST, r.Dst.Addr().AsSlice()))
	}
	data = append(data, tableAttr(&msg.Table, table, unix.RTA_TABLE)...)

	err := c.send(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, data...)
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add route %s via %s: %w (another interface of the Pod has a route to it)", r.Dst, r.Gateway, err)
	}
	if err != nil {
		return fmt.Errorf("add route %s via %s: %w", r.Dst, r.Gateway, err)
	}
	return nil
}

// tableAttr puts a table into the header's byte where it fits, else into an
// attribute of the type that routes and rules have for it.
func tableAttr(header *uint8, table int, attr int) []nl.NetlinkRequestData {
	if table <= 255 {
		*header = uint8(table)
		return nil
	}
	*header = unix.RT_TABLE_UNSPEC
	return []nl.NetlinkRequestData{nl.NewRtAttr(attr, nl.Uint32Attr(uint32(table)))}
}
