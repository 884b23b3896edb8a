// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// replyTimeout is far longer than a kernel under load needs for one message. Without it, a
	// lost reply would hold the parent's lock forever.
	replyTimeout = 60 * time.Second
	// maxDumpAttempts bounds how often an interrupted dump is repeated.
	maxDumpAttempts = 10
)

// conn is one route netlink socket. Requests on it wait for each other, as they would for the
// kernel's RTNL lock.
type conn struct {
	sock    *nl.NetlinkSocket
	sockets map[int]*nl.SocketHandle
	// observe, if not nil, is called with the type of each request.
	observe func(kind int)
}

// dial opens a socket in the calling thread's namespace.
func dial() (*conn, error) {
	sock, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	timeout := unix.NsecToTimeval(replyTimeout.Nanoseconds())
	// Extended acknowledgements add the kernel's message to errors.
	if err := errors.Join(sock.SetReceiveTimeout(&timeout), sock.SetExtAck(true)); err != nil {
		sock.Close()
		return nil, fmt.Errorf("set up a netlink socket: %w", err)
	}
	return &conn{sock: sock, sockets: map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: sock}}}, nil
}

func (c *conn) close() { c.sock.Close() }

// send sends a message and waits for the kernel's acknowledgement.
func (c *conn) send(kind, flags int, data ...nl.NetlinkRequestData) error {
	_, err := c.request(kind, flags|unix.NLM_F_ACK, data...)
	return err
}

// request sends a message and returns the kernel's answer.
func (c *conn) request(kind, flags int, data ...nl.NetlinkRequestData) ([][]byte, error) {
	req := nl.NewNetlinkRequest(kind, flags)
	req.Sockets = c.sockets
	for _, d := range data {
		req.AddData(d)
	}
	if c.observe != nil {
		c.observe(kind)
	}
	return req.Execute(unix.NETLINK_ROUTE, 0)
}

// dump returns a list of the kernel's objects. It repeats the request if a change made the
// list inconsistent (NLM_F_DUMP_INTR) or a signal interrupted it. With ErrDumpInterrupted it returns
// the last list.
func (c *conn) dump(kind int, data ...nl.NetlinkRequestData) (msgs [][]byte, err error) {
	for range maxDumpAttempts {
		msgs, err = c.request(kind, unix.NLM_F_DUMP, data...)
		if err == nil {
			return msgs, nil
		}
		if !errors.Is(err, nl.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) {
			return nil, err
		}
	}
	return msgs, fmt.Errorf("dump was interrupted %d times: %w", maxDumpAttempts, err)
}

// errLinkNotFound means that no link has the name.
var errLinkNotFound = errors.New("no such link")

// linkByName returns one link, without statistics and virtual functions.
func (c *conn) linkByName(name string) (netlink.Link, error) {
	msgs, err := c.request(unix.RTM_GETLINK, unix.NLM_F_ACK, nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	if errors.Is(err, unix.ENODEV) || err == nil && len(msgs) == 0 {
		return nil, fmt.Errorf("look up link %s: %w", name, errLinkNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("look up link %s: %w", name, err)
	}
	link, err := netlink.LinkDeserialize(nil, msgs[0])
	if err != nil {
		return nil, fmt.Errorf("read link %s: %w", name, err)
	}
	return link, nil
}

// listLinks returns the messages of all links, without statistics and virtual functions. If the error is
// ErrDumpInterrupted, links can be missing.
func (c *conn) listLinks() ([][]byte, error) {
	msgs, err := c.dump(unix.RTM_GETLINK, nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)))
	if err != nil {
		return msgs, fmt.Errorf("list links: %w", err)
	}
	return msgs, nil
}

// uppers returns the links on a link, such as VLANs, that are in the same namespace.
func (c *conn) uppers(index int) ([]upperLink, error) {
	return c.linksWhere(func(l upperLink) bool { return l.netns < 0 && l.on == index && l.index != index })
}

// foreignUppers returns the links of the socket's namespace on a link of another namespace, ns. A Pod that changes
// its links all the time does not prevent that: of the last list those that it has count.
func (c *conn) foreignUppers(ns *netNamespace, index int) ([]upperLink, error) {
	uppers, err := c.linksWhere(func(l upperLink) bool { return l.isOnForeign(index) })
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) || len(uppers) == 0 {
		return nil, ignoreInterrupted(err)
	}
	// The list of links has given ns an ID, if a link is on one of its links.
	id, err := c.namespaceID(ns)
	return slices.DeleteFunc(uppers, func(l upperLink) bool { return l.netns != id }), err
}

// ignoreInterrupted returns err, unless it means that the list of links changed while it was read.
func ignoreInterrupted(err error) error {
	if errors.Is(err, nl.ErrDumpInterrupted) {
		return nil
	}
	return err
}

// deleteUppers deletes links on a link. Those that only a driver can delete stay: no user has made them.
func (c *conn) deleteUppers(ctx context.Context, uppers []upperLink) error {
	for _, upper := range uppers {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("delete link %s: %w", upper.name, err)
		}
		if err := c.deleteLink(upper.index); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("delete link %s: %w", upper.name, err)
		}
	}
	return nil
}

// linksWhere returns the links of the socket's namespace for which match returns true. If the error is
// ErrDumpInterrupted, links can be missing.
func (c *conn) linksWhere(match func(upperLink) bool) ([]upperLink, error) {
	msgs, err := c.listLinks()
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
		return nil, err
	}
	var found []upperLink
	for _, m := range msgs {
		if l, err := parseUpper(m); err == nil && match(l) {
			found = append(found, l)
		}
	}
	return found, err
}

// upperLink is a link that can be on another link.
type upperLink struct {
	index int
	name  string
	// kind is empty for the interface of a device.
	kind string
	// on is the index of the link below, or 0.
	on int
	// netns is the ID of the namespace that the index on is of, or -1 for that of the link itself.
	netns int
}

func parseUpper(m []byte) (upperLink, error) {
	attrs, err := parseAttributes(m, unix.SizeofIfInfomsg)
	if err != nil {
		return upperLink{}, err
	}
	l := upperLink{index: int(nl.DeserializeIfInfomsg(m).Index), kind: linkKind(attrs), netns: -1}
	for _, a := range attrs {
		switch {
		case a.Attr.Type == unix.IFLA_IFNAME:
			l.name = unix.ByteSliceToString(a.Value)
		case a.Attr.Type == unix.IFLA_LINK && len(a.Value) == 4:
			l.on = int(nl.NativeEndian().Uint32(a.Value))
		case a.Attr.Type == unix.IFLA_LINK_NETNSID && len(a.Value) == 4:
			l.netns = int(int32(nl.NativeEndian().Uint32(a.Value)))
		}
	}
	return l, nil
}

// isOnForeign reports whether the link is on the link with the index in another namespace. Only these kinds hold the
// link below. A tunnel has the number of a link, which may be another one's by now, and a VXLAN that has moved
// names itself.
func (l *upperLink) isOnForeign(index int) bool {
	if l.netns < 0 || l.on != index {
		return false
	}
	switch l.kind {
	case "vlan", "macvlan", "macvtap", "ipvlan", "macsec":
		return true
	}
	return false
}

// linkKind returns the kind of a link with these attributes. It is empty for the interface of a device.
func linkKind(attrs []syscall.NetlinkRouteAttr) string {
	for _, a := range attrs {
		if a.Attr.Type != unix.IFLA_LINKINFO {
			continue
		}
		info, err := nl.ParseRouteAttr(a.Value)
		if err != nil {
			return ""
		}
		for _, i := range info {
			if i.Attr.Type == unix.IFLA_INFO_KIND {
				return unix.ByteSliceToString(i.Value)
			}
		}
	}
	return ""
}

// namespaceID returns the ID that ns has in the socket's namespace, or -1 if it has none.
func (c *conn) namespaceID(ns *netNamespace) (int, error) {
	msgs, err := c.request(unix.RTM_GETNSID, 0, nl.NewRtGenMsg(), nl.NewRtAttr(netlink.NETNSA_FD, nl.Uint32Attr(uint32(ns.fd))))
	if err != nil {
		return -1, fmt.Errorf("look up the ID of %s: %w", ns.path, err)
	}
	for _, m := range msgs {
		attrs, err := parseAttributes(m, nl.NewRtGenMsg().Len())
		if err != nil {
			return -1, fmt.Errorf("read the ID of %s: %w", ns.path, err)
		}
		for _, a := range attrs {
			if a.Attr.Type == netlink.NETNSA_NSID && len(a.Value) == 4 {
				return int(int32(nl.NativeEndian().Uint32(a.Value))), nil
			}
		}
	}
	return -1, nil
}

// linkIndex returns a link's index. It uses an ioctl, which needs no RTNL lock.
func (c *conn) linkIndex(name string) (int, error) {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return 0, fmt.Errorf("look up the index of %s: %w", name, err)
	}
	if err := unix.IoctlIfreq(c.sock.GetFd(), unix.SIOCGIFINDEX, req); err != nil {
		return 0, fmt.Errorf("look up the index of %s: %w", name, err)
	}
	return int(req.Uint32()), nil
}

// setLink changes a link's attributes; with up it also sets the link up, in the same message.
func (c *conn) setLink(index int, up bool, attrs ...nl.NetlinkRequestData) error {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	if up {
		msg.Flags, msg.Change = unix.IFF_UP, unix.IFF_UP
	}
	return c.send(unix.RTM_NEWLINK, 0, append([]nl.NetlinkRequestData{msg}, attrs...)...)
}

// changeAltNames adds alternative names to a link, or deletes them, according to the kind of message.
func (c *conn) changeAltNames(kind, index int, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	list := nl.NewRtAttr(unix.IFLA_PROP_LIST|unix.NLA_F_NESTED, nil)
	for _, name := range names {
		list.AddRtAttr(unix.IFLA_ALT_IFNAME, nl.ZeroTerminated(name))
	}
	if err := c.send(kind, 0, msg, list); err != nil {
		return fmt.Errorf("change alternative names %q: %w", names, err)
	}
	return nil
}

// deleteLink deletes a link; a missing link is not an error.
func (c *conn) deleteLink(index int) error {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	err := c.send(unix.RTM_DELLINK, 0, msg)
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// addAddress adds an address; it ignores the zero Prefix. It sets no broadcast address: the
// kernel does not need one, and a /31 has none.
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
