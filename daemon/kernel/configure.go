// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/network"
)

// configure brings the link from birth to use. The order matters: settings
// before addresses, so that no address is ever used without them; addresses
// before up, so that the kernel announces them when the link comes up.
func (p *pod) configure(ctx context.Context, s *Slave, name string, index int) error {
	attrs := finish(s.Owner)
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
		return fmt.Errorf("set up: %w", upError(err))
	}
	if err := p.addRoutes(s, index); err != nil {
		return err
	}
	return p.settle(ctx, s, index)
}

// upError explains why a link does not come up: a MACVLAN checks its MAC then.
func upError(err error) error {
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w: the MAC or mode is taken on the parent: %w", ErrParentBusy, err)
	}
	return err
}

// addRoutes installs the network's routes, the policy routes and their rules.
func (c *conn) addRoutes(s *Slave, index int) error {
	for _, r := range s.Routes {
		if s.has(r) {
			if err := c.addRoute(r, index, unix.RT_TABLE_MAIN); err != nil {
				return err
			}
		}
	}
	for _, r := range s.PolicyRoutes {
		if s.has(r) {
			if err := c.addRoute(r, index, s.Table); err != nil {
				return err
			}
		}
	}
	return c.addRules(s)
}

// has reports whether the slave has an address of the route's family.
func (s *Slave) has(r network.Route) bool {
	if r.Dst.Addr().Is4() {
		return s.V4.IsValid()
	}
	return s.V6.IsValid()
}
