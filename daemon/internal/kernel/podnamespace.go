// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// podNamespace is a Pod's namespace that the current thread is in, with a socket in it.
type podNamespace struct {
	*conn
	ns *netNamespace
	// driver is that of the function that is configured; empty for other links.
	driver string
}

// inPodNamespace runs fn on a thread in the namespace at path.
func inPodNamespace(path string, fn func(*podNamespace) error) error {
	ns, err := openNamespace(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.do(func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.close()
		return fn(&podNamespace{conn: c, ns: ns})
	})
}

// configure makes a new link ready for use. The order matters: sysctls before addresses, so that
// no address is used without them, and addresses before the link is set up, so that the kernel
// announces them. The caller waits for duplicate address detection.
func (p *podNamespace) configure(ctx context.Context, i *PodInterface, name string, index int) error {
	attrs := finishAttributes(i.Owner)
	if name != i.Name {
		attrs = append(attrs, nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(i.Name)))
		// A link that is up cannot be renamed, and the paths of sysctls contain the name.
		if err := p.setLink(index, false, attrs...); err != nil {
			return fmt.Errorf("rename %s: %w", name, err)
		}
		attrs = nil
	}
	if err := setSysctls(i); err != nil {
		return err
	}
	for _, a := range []netip.Prefix{i.V4, i.V6} {
		if err := p.addAddress(index, a); err != nil {
			return err
		}
	}
	if err := p.setUp(ctx, index, attrs); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return p.addRoutes(i, index)
}

// setUp sets a link up and changes its attributes, in one message.
func (p *podNamespace) setUp(ctx context.Context, index int, attrs []nl.NetlinkRequestData) error {
	up := func() error { return p.setLink(index, true, attrs...) }
	if p.driver != "" {
		return whileReset(ctx, p.driver, up)
	}
	return explainUpError(up())
}

// explainUpError explains why a link cannot be set up: a MACVLAN checks its MAC then.
func explainUpError(err error) error {
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w: another slave of the parent has the MAC, or the parent does not allow the mode: %w", ErrParentBusy, err)
	}
	return err
}

// setSysctls writes the settings of an interface that has no address yet.
func setSysctls(i *PodInterface) error {
	for _, set := range i.sysctls() {
		if err := set.write(); err != nil {
			return err
		}
	}
	return nil
}

// addRoutes adds the network's routes, the policy routes and their rules.
func (p *podNamespace) addRoutes(i *PodInterface, index int) error {
	for _, r := range i.Routes {
		if i.hasFamilyOf(r) {
			if err := p.addRoute(r, index, unix.RT_TABLE_MAIN); err != nil {
				return err
			}
		}
	}
	for _, r := range i.PolicyRoutes {
		if i.hasFamilyOf(r) {
			if err := p.addRoute(r, index, i.Table); err != nil {
				return err
			}
		}
	}
	return p.addRules(i)
}

// addRoute adds a route. An existing route to the same destination belongs to another interface of
// the Pod: it is not replaced.
func (p *podNamespace) addRoute(r network.Route, index, table int) error {
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

	err := p.send(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, data...)
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add route %s via %s: %w (another interface of the Pod has a route to it)", r.Dst, r.Gateway, err)
	}
	if err != nil {
		return fmt.Errorf("add route %s via %s: %w", r.Dst, r.Gateway, err)
	}
	return nil
}

// addRules adds a rule for each of the interface's addresses to use its table. The rules are not for
// the whole subnet, which other Pods are in, too.
func (p *podNamespace) addRules(i *PodInterface) error {
	for _, a := range i.ruleSources() {
		err := p.send(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, ruleMessage(a, i.Table)...)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add rule from %s table %d: %w", a, i.Table, err)
		}
	}
	return nil
}

// deleteRules deletes the interface's rules, which the kernel does not delete with the link.
func (p *podNamespace) deleteRules(i *PodInterface) error {
	for _, a := range i.ruleSources() {
		err := p.send(unix.RTM_DELRULE, 0, ruleMessage(a, i.Table)...)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("delete rule from %s table %d: %w", a, i.Table, err)
		}
	}
	return nil
}

// ruleMessage is the message of a rule: fib_rule_hdr has the layout of rtmsg.
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

// tableAttribute sets the table in the header if it fits into the byte. Otherwise it returns it
// as an attribute of type attr, which differs between routes and rules.
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
	// dadPollInterval is the time between two requests for the address's state.
	dadPollInterval = 10 * time.Millisecond
)

// waitForDAD waits until duplicate address detection of the IPv6 address is over. Until then the
// kernel rejects connections from it, and a Pod that starts at once could fail.
func (p *podNamespace) waitForDAD(ctx context.Context, i *PodInterface, index int) error {
	if !i.V6.IsValid() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dadTimeout)
	defer cancel()
	tick := time.NewTicker(dadPollInterval)
	defer tick.Stop()
	for {
		flags, err := p.addressFlags(i, index)
		switch {
		case err != nil:
			return err
		case flags&unix.IFA_F_DADFAILED != 0:
			return fmt.Errorf("duplicate address detection of %s: %w", i.V6.Addr(), ErrAddressTaken)
		case flags&unix.IFA_F_TENTATIVE == 0:
			return sysctl{"ipv6/neigh/" + i.Name + "/retrans_time_ms", defaultRetransMillis}.write()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for duplicate address detection of %s (is the parent's carrier up?): %w", i.V6.Addr(), ctx.Err())
		case <-tick.C:
		}
	}
}

// addressFlags returns the IFA_F_* flags of the interface's IPv6 address.
func (p *podNamespace) addressFlags(i *PodInterface, index int) (uint32, error) {
	msg := nl.NewIfAddrmsg(unix.AF_INET6)
	msg.Index = uint32(index)
	msgs, err := p.request(unix.RTM_GETADDR, unix.NLM_F_ACK, msg, nl.NewRtAttr(unix.IFA_ADDRESS, i.V6.Addr().AsSlice()))
	if err != nil {
		return 0, fmt.Errorf("look up address %s: %w", i.V6.Addr(), err)
	}
	if len(msgs) == 0 {
		return 0, fmt.Errorf("look up address %s: %w", i.V6.Addr(), unix.EADDRNOTAVAIL)
	}
	answer := nl.DeserializeIfAddrmsg(msgs[0])
	attrs, err := nl.ParseRouteAttr(msgs[0][answer.Len():])
	if err != nil {
		return 0, fmt.Errorf("read address %s: %w", i.V6.Addr(), err)
	}
	flags := uint32(answer.Flags)
	for _, a := range attrs {
		if a.Attr.Type == unix.IFA_FLAGS && len(a.Value) == 4 {
			flags = nl.NativeEndian().Uint32(a.Value)
		}
	}
	return flags, nil
}

// removeLeftover deletes the link that an earlier attempt left in the Pod under the name. A link
// that Patchbay does not manage is ErrNameTaken.
func (p *podNamespace) removeLeftover(s *Slave, name string) error {
	link, err := p.linkByName(name)
	switch {
	case errors.Is(err, errLinkNotFound):
		return nil // the link of this name is the host's
	case err != nil:
		return err
	case link.Type() != s.Kind || !isManaged(link.Attrs()):
		return fmt.Errorf("%s is a %s link in the Pod: %w", name, link.Type(), ErrNameTaken)
	}
	return p.removeSlave(s, link.Attrs().Index)
}

func (p *podNamespace) detach(s *Slave) error {
	link, err := p.linkByName(s.Name)
	if errors.Is(err, errLinkNotFound) {
		link, err = p.linkByName(temporaryName(s.Name))
	}
	switch {
	case errors.Is(err, errLinkNotFound):
		return p.deleteRules(&s.PodInterface)
	case err != nil:
		return err
	case link.Type() != s.Kind || link.Attrs().NetNsID < 0:
		return nil
	}
	return p.removeSlave(s, link.Attrs().Index)
}

// removeSlave deletes the link and its rules.
func (p *podNamespace) removeSlave(s *Slave, index int) error {
	if err := p.deleteLink(index); err != nil {
		return fmt.Errorf("delete link %s: %w", s.Name, err)
	}
	return p.deleteRules(&s.PodInterface)
}

const (
	// carrierTimeout bounds the wait for the carrier of a function whose physical function has one. A
	// card without a switch between its functions may have none for the function.
	carrierTimeout = 3 * time.Second
	// carrierTimeoutV6 is the bound for a function with an IPv6 address. Without a carrier the kernel does not
	// start duplicate address detection, and the Pod cannot start. igbvf resets a function that missed an answer of
	// its physical function, but not in the 10 s after its last reset.
	carrierTimeoutV6 = 15 * time.Second
	// carrierPollInterval is the time between two requests for the interface's flags.
	carrierPollInterval = 10 * time.Millisecond
)

// waitForCarrier waits until the interface can send, and returns it: the driver gets the link's state
// from the physical function a while after the interface was set up.
func (p *podNamespace) waitForCarrier(ctx context.Context, name string, timeout time.Duration, host *conn, parent string) (*netlink.LinkAttrs, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(carrierPollInterval)
	defer tick.Stop()
	for {
		link, err := p.linkByName(name)
		if err != nil {
			return nil, err
		}
		if link.Attrs().RawFlags&unix.IFF_LOWER_UP != 0 {
			return link.Attrs(), nil
		}
		if up, err := host.linkByName(parent); err != nil || up.Attrs().RawFlags&unix.IFF_LOWER_UP == 0 {
			return link.Attrs(), nil
		}
		select {
		case <-ctx.Done():
			return link.Attrs(), nil
		case <-tick.C:
		}
	}
}

// setPromiscuous sets the flag of an interface.
func (p *podNamespace) setPromiscuous(index int) error {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index, msg.Change, msg.Flags = int32(index), unix.IFF_PROMISC, unix.IFF_PROMISC
	return p.send(unix.RTM_NEWLINK, 0, msg)
}

// linkByAddress returns the Pod's link of a PCI device, or nil. It reads the address from the list of links: a
// name may be another link's by the next request. Kernels before 5.14 have no address there; then that of the
// driver counts (ethtool -i), which is not asked for the links that a Pod can make. Unlike sysfs, both work in every
// namespace.
func (p *podNamespace) linkByAddress(ctx context.Context, address string) (*netlink.LinkAttrs, error) {
	msgs, err := p.listLinks()
	if err != nil {
		return nil, err
	}
	for _, m := range msgs {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("find the interface of %s: %w", address, err)
		}
		attrs, err := parseAttributes(m, unix.SizeofIfInfomsg)
		if err != nil {
			continue
		}
		var device, name string
		for _, a := range attrs {
			switch a.Attr.Type {
			case unix.IFLA_PARENT_DEV_NAME:
				device = unix.ByteSliceToString(a.Value)
			case unix.IFLA_IFNAME:
				name = unix.ByteSliceToString(a.Value)
			}
		}
		if device == "" && linkKind(attrs) == "" {
			if info, err := unix.IoctlGetEthtoolDrvinfo(p.sock.GetFd(), name); err == nil {
				device = unix.ByteSliceToString(info.Bus_info[:])
			}
		}
		if device != address {
			continue
		}
		link, err := netlink.LinkDeserialize(nil, m)
		if err != nil {
			return nil, fmt.Errorf("read link %s: %w", name, err)
		}
		return link.Attrs(), nil
	}
	return nil, nil
}
