// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// family is AF_INET or AF_INET6.
func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// addAddress adds a; the zero Prefix is none. No broadcast address is set: the
// kernel needs none, and a /31 has none.
func (c *conn) addAddress(index int, a netip.Prefix) error {
	if !a.IsValid() {
		return nil
	}
	err := c.send(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, addressMessage(index, a)...)
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("add address %s: %w: %w (another slave of the parent has it)", a, ErrAddressTaken, err)
	}
	if err != nil {
		return fmt.Errorf("add address %s: %w", a, err)
	}
	return nil
}

func (c *conn) deleteAddress(index int, a netip.Prefix) error {
	if err := c.send(unix.RTM_DELADDR, 0, addressMessage(index, a)...); err != nil {
		return fmt.Errorf("delete address %s: %w", a, err)
	}
	return nil
}

func addressMessage(index int, a netip.Prefix) []nl.NetlinkRequestData {
	msg := nl.NewIfAddrmsg(family(a.Addr()))
	msg.Index = uint32(index)
	msg.Prefixlen = uint8(a.Bits())
	return []nl.NetlinkRequestData{
		msg,
		nl.NewRtAttr(unix.IFA_LOCAL, a.Addr().AsSlice()),
		nl.NewRtAttr(unix.IFA_ADDRESS, a.Addr().AsSlice()),
	}
}
