// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// configure brings the link from birth to use. The order matters: settings
// before addresses, so that no address is ever used without them; addresses
// before up, so that the kernel announces them when the link comes up.
func (p *podNamespace) configure(ctx context.Context, s *Slave, name string, index int) error {
	attrs := finishAttributes(s.Owner)
	if name != s.Name {
		attrs = append(attrs, nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(s.Name)))
		// A link that is up cannot be renamed, and sysctls go by the name.
		if err := p.setLink(index, false, attrs...); err != nil {
			return fmt.Errorf("rename %s: %w", name, err)
		}
		attrs = nil
	}
	if err := setSysctls(s); err != nil {
		return err
	}
	for _, a := range []netip.Prefix{s.V4, s.V6} {
		if err := p.addAddress(index, a); err != nil {
			return err
		}
	}
	if err := p.setLink(index, true, attrs...); err != nil {
		return fmt.Errorf("set up: %w", explainUpError(err))
	}
	if err := p.addRoutes(s, index); err != nil {
		return err
	}
	return p.waitForDAD(ctx, s, index)
}

// explainUpError explains why a link does not come up: a MACVLAN checks its MAC then.
func explainUpError(err error) error {
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w: the MAC or mode is taken on the parent: %w", ErrParentBusy, err)
	}
	return err
}

// setSysctls prepares an interface that has no address yet.
func setSysctls(s *Slave) error {
	for _, set := range s.sysctls() {
		if err := set.write(); err != nil {
			return err
		}
	}
	return nil
}

// addRoutes installs the network's routes, the policy routes and their rules.
func (c *conn) addRoutes(s *Slave, index int) error {
	for _, r := range s.Routes {
		if s.hasFamilyOf(r) {
			if err := c.addRoute(r, index, unix.RT_TABLE_MAIN); err != nil {
				return err
			}
		}
	}
	for _, r := range s.PolicyRoutes {
		if s.hasFamilyOf(r) {
			if err := c.addRoute(r, index, s.Table); err != nil {
				return err
			}
		}
	}
	return c.addRules(s)
}

// addRoute adds r. A route to the same destination that is there already belongs
// to another interface of the Pod, and is not replaced.
func (c *conn) addRoute(r network.Route, index, table int) error {
	msg := nl.NewRtMsg()
	msg.Family = uint8(addressFamily(r.Dst.Addr()))
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
	data = append(data, tableAttribute(&msg.Table, table, unix.RTA_TABLE)...)

	err := c.send(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, data...)
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add route %s via %s: %w (another interface of the Pod has a route to it)", r.Dst, r.Gateway, err)
	}
	if err != nil {
		return fmt.Errorf("add route %s via %s: %w", r.Dst, r.Gateway, err)
	}
	return nil
}

// addRules makes packets from the slave's own addresses look into its table: the
// addresses alone, since the subnet is other Pods' as well.
func (c *conn) addRules(s *Slave) error {
	for _, a := range s.ruleSources() {
		err := c.send(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, ruleMessage(a, s.Table)...)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add rule from %s table %d: %w", a, s.Table, err)
		}
	}
	return nil
}

// deleteRules removes them; the kernel keeps rules when a link goes.
func (c *conn) deleteRules(s *Slave) error {
	for _, a := range s.ruleSources() {
		err := c.send(unix.RTM_DELRULE, 0, ruleMessage(a, s.Table)...)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("delete rule from %s table %d: %w", a, s.Table, err)
		}
	}
	return nil
}

// ruleMessage is a fib_rule_hdr, which has the layout of rtmsg.
func ruleMessage(from netip.Addr, table int) []nl.NetlinkRequestData {
	msg := nl.NewRtMsg()
	msg.Family = uint8(addressFamily(from))
	msg.Src_len = uint8(from.BitLen())
	msg.Protocol = unix.RTPROT_UNSPEC
	msg.Scope = unix.RT_SCOPE_UNIVERSE
	msg.Type = nl.FR_ACT_TO_TBL
	return append([]nl.NetlinkRequestData{
		msg,
		nl.NewRtAttr(nl.FRA_SRC, from.AsSlice()),
		nl.NewRtAttr(nl.FRA_PROTOCOL, nl.Uint8Attr(unix.RTPROT_STATIC)),
	}, tableAttribute(&msg.Table, table, nl.FRA_TABLE)...)
}

// tableAttribute puts a table into the header's byte where it fits, else into an
// attribute of the type that routes and rules have for it.
func tableAttribute(header *uint8, table int, attr int) []nl.NetlinkRequestData {
	if table <= 255 {
		*header = uint8(table)
		return nil
	}
	*header = unix.RT_TABLE_UNSPEC
	return []nl.NetlinkRequestData{nl.NewRtAttr(attr, nl.Uint32Attr(uint32(table)))}
}

const (
	// dadTimeout bounds the wait for duplicate address detection.
	dadTimeout = 5 * time.Second
	// dadPollInterval is how often the address's state is asked for.
	dadPollInterval = 10 * time.Millisecond
)

// waitForDAD waits until the IPv6 address may be used: until then the kernel drops
// connections from it, so a Pod that starts at once would fail at random.
func (c *conn) waitForDAD(ctx context.Context, s *Slave, index int) error {
	if !s.V6.IsValid() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dadTimeout)
	defer cancel()
	tick := time.NewTicker(dadPollInterval)
	defer tick.Stop()
	for {
		flags, err := c.addressFlags(s, index)
		switch {
		case err != nil:
			return err
		case flags&unix.IFA_F_DADFAILED != 0:
			return fmt.Errorf("duplicate address detection of %s: %w", s.V6.Addr(), ErrAddressTaken)
		case flags&unix.IFA_F_TENTATIVE == 0:
			return sysctl{"ipv6/neigh/" + s.Name + "/retrans_time_ms", defaultRetransMillis}.write()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for duplicate address detection of %s (is the parent's carrier up?): %w", s.V6.Addr(), ctx.Err())
		case <-tick.C:
		}
	}
}

// addressFlags are IFA_F_* of the slave's IPv6 address.
func (c *conn) addressFlags(s *Slave, index int) (uint32, error) {
	msg := nl.NewIfAddrmsg(unix.AF_INET6)
	msg.Index = uint32(index)
	msgs, err := c.request(unix.RTM_GETADDR, unix.NLM_F_ACK, msg, nl.NewRtAttr(unix.IFA_ADDRESS, s.V6.Addr().AsSlice()))
	if err != nil {
		return 0, fmt.Errorf("look up address %s: %w", s.V6.Addr(), err)
	}
	if len(msgs) == 0 {
		return 0, fmt.Errorf("look up address %s: %w", s.V6.Addr(), unix.EADDRNOTAVAIL)
	}
	answer := nl.DeserializeIfAddrmsg(msgs[0])
	attrs, err := nl.ParseRouteAttr(msgs[0][answer.Len():])
	if err != nil {
		return 0, fmt.Errorf("read address %s: %w", s.V6.Addr(), err)
	}
	flags := uint32(answer.Flags)
	for _, a := range attrs {
		if a.Attr.Type == unix.IFA_FLAGS && len(a.Value) == 4 {
			flags = nl.NativeEndian().Uint32(a.Value)
		}
	}
	return flags, nil
}
