// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// settleTimeout bounds the wait for duplicate address detection.
	settleTimeout = 5 * time.Second
	// settlePause is how often the address's state is asked for.
	settlePause = 10 * time.Millisecond
)

// settle waits until the IPv6 address may be used: until then the kernel drops
// connections from it, so a Pod that starts at once would fail at random.
func (c *conn) settle(ctx context.Context, s *Slave, index int) error {
	if !s.V6.IsValid() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	tick := time.NewTicker(settlePause)
	defer tick.Stop()
	for {
		flags, err := c.addressFlags(s, index)
		switch {
		case err != nil:
			return err
		case flags&unix.IFA_F_DADFAILED != 0:
			return fmt.Errorf("duplicate address detection of %s: %w", s.V6.Addr(), ErrAddressTaken)
		case flags&unix.IFA_F_TENTATIVE == 0:
			return sysctl{"ipv6/neigh/" + s.Name + "/retrans_time_ms", retransMillis}.write()
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
	msgs, err := c.ask(unix.RTM_GETADDR, unix.NLM_F_ACK, msg, nl.NewRtAttr(unix.IFA_ADDRESS, s.V6.Addr().AsSlice()))
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
