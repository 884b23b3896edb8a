// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Kinds of slaves, as the kernel names them.
const (
	// IPVLAN slaves share their parent's MAC.
	IPVLAN = "ipvlan"
	// MACVLAN slaves have a MAC each.
	MACVLAN = "macvlan"
)

// Slave is an interface of a Pod on top of a host link.
type Slave struct {
	PodInterface

	// Kind is IPVLAN or MACVLAN.
	Kind string
	// Mode of an IPVLAN is l2 (the default), l3 or l3s; of a MACVLAN bridge (the default),
	// private, vepa or passthru.
	Mode string
	// Parent is the name of the host link below.
	Parent string
	// MTU in bytes, at most the parent's; 0 is the parent's.
	MTU int
	// MAC of a MACVLAN; nil is a random one. An IPVLAN has its parent's.
	MAC net.HardwareAddr
}

// AttachResult describes an attached interface.
type AttachResult struct {
	// Index of the link in the Pod's namespace.
	Index int
	// MAC in the colon notation.
	MAC string
	// MTU in bytes.
	MTU int
}

// validate returns an error if the request can never succeed.
func (s *Slave) validate() error {
	if err := s.PodInterface.validate(); err != nil {
		return err
	}
	_, err := s.linkInfo()
	return err
}

// linkInfo is the IFLA_LINKINFO of the slave.
func (s *Slave) linkInfo() (*nl.RtAttr, error) {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(s.Kind))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	switch s.Kind {
	case IPVLAN:
		mode, ok := ipvlanMode(s.Mode)
		if !ok {
			return nil, fmt.Errorf("%w: IPVLAN mode %q: must be l2, l3 or l3s", ErrInvalid, s.Mode)
		}
		data.AddRtAttr(nl.IFLA_IPVLAN_MODE, nl.Uint16Attr(mode))
	case MACVLAN:
		mode, ok := macvlanMode(s.Mode)
		if !ok {
			return nil, fmt.Errorf("%w: MACVLAN mode %q: must be bridge, private, vepa or passthru", ErrInvalid, s.Mode)
		}
		data.AddRtAttr(nl.IFLA_MACVLAN_MODE, nl.Uint32Attr(mode))
	default:
		return nil, fmt.Errorf("%w: link kind %q: must be %s or %s", ErrInvalid, s.Kind, IPVLAN, MACVLAN)
	}
	return info, nil
}

// ipvlanMode returns the IPVLAN_MODE of <linux/if_link.h>. The empty mode is the default.
func ipvlanMode(name string) (mode uint16, ok bool) {
	switch name {
	case "", "l2":
		return 0, true
	case "l3":
		return 1, true
	case "l3s":
		return 2, true
	}
	return 0, false
}

// macvlanMode returns the MACVLAN_MODE of <linux/if_link.h>. The empty mode is the default.
func macvlanMode(name string) (mode uint32, ok bool) {
	switch name {
	case "private":
		return 1, true
	case "vepa":
		return 2, true
	case "", "bridge":
		return 4, true
	case "passthru":
		return 8, true
	}
	return 0, false
}
