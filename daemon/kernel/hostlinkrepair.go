// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

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
		return fmt.Errorf("set up: %w", err)
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
