// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// addRules makes packets from the slave's own addresses look into its table: the
// addresses alone, since the subnet is other Pods' as well.
func (c *conn) addRules(s *Slave) error {
	for _, a := range s.ruled() {
		err := c.send(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, ruleMessage(a, s.Table)...)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add rule from %s table %d: %w", a, s.Table, err)
		}
	}
	return nil
}

// deleteRules removes them; the kernel keeps rules when a link goes.
func (c *conn) deleteRules(s *Slave) error {
	for _, a := range s.ruled() {
		err := c.send(unix.RTM_DELRULE, 0, ruleMessage(a, s.Table)...)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("delete rule from %s table %d: %w", a, s.Table, err)
		}
	}
	return nil
}

// ruled are the addresses whose family has a policy route.
func (s *Slave) ruled() []netip.Addr {
	var v4, v6 bool
	for _, r := range s.PolicyRoutes {
		v4 = v4 || r.Dst.Addr().Is4()
		v6 = v6 || r.Dst.Addr().Is6()
	}
	var from []netip.Addr
	if v4 && s.V4.IsValid() {
		from = append(from, s.V4.Addr())
	}
	if v6 && s.V6.IsValid() {
		from = append(from, s.V6.Addr())
	}
	return from
}

// ruleMessage is a fib_rule_hdr, which has the layout of rtmsg.
func ruleMessage(from netip.Addr, table int) []nl.NetlinkRequestData {
	msg := nl.NewRtMsg()
	msg.Family = uint8(family(from))
	msg.Src_len = uint8(from.BitLen())
	msg.Protocol = unix.RTPROT_UNSPEC
	msg.Scope = unix.RT_SCOPE_UNIVERSE
	msg.Type = nl.FR_ACT_TO_TBL
	return append([]nl.NetlinkRequestData{
		msg,
		nl.NewRtAttr(nl.FRA_SRC, from.AsSlice()),
		nl.NewRtAttr(nl.FRA_PROTOCOL, nl.Uint8Attr(unix.RTPROT_STATIC)),
	}, tableAttr(&msg.Table, table, nl.FRA_TABLE)...)
}
