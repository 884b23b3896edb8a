// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

// createHostLink makes the link and removes it again when it cannot be finished.
func (k *Kernel) createHostLink(s *netwatcher.Spec) error {
	if !validName(s.Name) {
		return fmt.Errorf("%w: link name %q", ErrInvalid, s.Name)
	}
	parent, err := k.host.index(s.Device)
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%s: %w", s.Device, ErrParentMissing)
	}
	if err != nil {
		return err
	}
	err = k.host.send(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
		nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(s.Name)),
		nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(uint32(parent))),
		nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(s.MTU))),
		nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(birthGroup)),
		hostLinkInfo(s, parent))
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: %w", ErrNameTaken, err)
	}
	if err != nil {
		return err
	}
	index, err := k.host.index(s.Name)
	if err != nil {
		return err
	}
	if err := k.finishHostLink(s, index); err != nil {
		return errors.Join(err, k.host.deleteLink(index))
	}
	return nil
}

// finishHostLink marks and seals the link before it is set up: not one packet is
// to come from the node itself.
func (k *Kernel) finishHostLink(s *netwatcher.Spec, index int) error {
	attrs := append(finish(s.Identity.String()), noLinkLocal())
	if err := k.host.setLink(index, false, attrs...); err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	if err := k.home.inside(disableIPv6(s.Name).write); err != nil {
		return err
	}
	if err := k.host.setPeers(index, s.Peers, nil); err != nil {
		return err
	}
	if err := k.host.setLink(index, true); err != nil {
		return fmt.Errorf("set up: %w", portTaken(err))
	}
	return nil
}
