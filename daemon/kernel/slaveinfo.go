// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Link modes of <linux/if_link.h>.
var (
	ipvlanModes  = map[string]uint16{"": 0, "l2": 0, "l3": 1, "l3s": 2}
	macvlanModes = map[string]uint32{"": 4, "private": 1, "vepa": 2, "bridge": 4, "passthru": 8}
)

// info is the IFLA_LINKINFO of the slave.
func (s *Slave) info() (*nl.RtAttr, error) {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(s.Kind))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	switch s.Kind {
	case IPVLAN:
		mode, ok := ipvlanModes[s.Mode]
		if !ok {
			return nil, fmt.Errorf("%w: IPVLAN mode %q: want l2, l3 or l3s", ErrInvalid, s.Mode)
		}
		data.AddRtAttr(nl.IFLA_IPVLAN_MODE, nl.Uint16Attr(mode))
	case MACVLAN:
		mode, ok := macvlanModes[s.Mode]
		if !ok {
			return nil, fmt.Errorf("%w: MACVLAN mode %q: want bridge, private, vepa or passthru", ErrInvalid, s.Mode)
		}
		data.AddRtAttr(nl.IFLA_MACVLAN_MODE, nl.Uint32Attr(mode))
	default:
		return nil, fmt.Errorf("%w: link kind %q: want %s or %s", ErrInvalid, s.Kind, IPVLAN, MACVLAN)
	}
	return info, nil
}
