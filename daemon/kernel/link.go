// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// mark opens the alias of every link that this program made.
	mark = "patchbay:"
	// maxAlias is IFALIASZ without the final zero.
	maxAlias = 255
	// birthGroup is the link group of a link that has no alias yet ("pb").
	birthGroup = 0x7062
	// skipStats is RTEXT_FILTER_SKIP_STATS: counters are most of an answer.
	skipStats = 1 << 3
)

// errNoLink says that a look-up found nothing.
var errNoLink = errors.New("no such link")

// alias marks a link as ours and says whose it is.
func alias(owner string) string {
	a := mark + owner
	if len(a) > maxAlias {
		return a[:maxAlias]
	}
	return a
}

// ours tells links that this program made, finished or not.
func ours(l *netlink.LinkAttrs) bool {
	return len(l.Alias) >= len(mark) && l.Alias[:len(mark)] == mark || halfMade(l)
}

// halfMade tells links of ours whose making was interrupted.
func halfMade(l *netlink.LinkAttrs) bool {
	return l.Alias == "" && l.Group == birthGroup
}

// linkByName asks for one link, without statistics and virtual functions.
func (c *conn) linkByName(name string) (netlink.Link, error) {
	msgs, err := c.ask(unix.RTM_GETLINK, unix.NLM_F_ACK, nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	if errors.Is(err, unix.ENODEV) || err == nil && len(msgs) == 0 {
		return nil, fmt.Errorf("look up link %s: %w", name, errNoLink)
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

// listLinks asks for all links, without statistics and virtual functions.
func (c *conn) listLinks() ([][]byte, error) {
	msgs, err := c.list(unix.RTM_GETLINK, nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)))
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	return msgs, nil
}

// index asks with an ioctl, which needs no RTNL lock.
func (c *conn) index(name string) (int, error) {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return 0, fmt.Errorf("look up the index of %s: %w", name, err)
	}
	if err := unix.IoctlIfreq(c.sock.GetFd(), unix.SIOCGIFINDEX, req); err != nil {
		return 0, fmt.Errorf("look up the index of %s: %w", name, err)
	}
	return int(req.Uint32()), nil
}

// setLink changes the link; up also sets it up, in the same message.
func (c *conn) setLink(index int, up bool, attrs ...nl.NetlinkRequestData) error {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	if up {
		msg.Flags, msg.Change = unix.IFF_UP, unix.IFF_UP
	}
	return c.send(unix.RTM_NEWLINK, 0, append([]nl.NetlinkRequestData{msg}, attrs...)...)
}

// finish gives a half-made link its alias and takes it out of the birth group.
func finish(owner string) []nl.NetlinkRequestData {
	return []nl.NetlinkRequestData{
		nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(alias(owner))),
		nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(0)),
	}
}

// deleteLink removes a link; a missing one is no error.
func (c *conn) deleteLink(index int) error {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	err := c.send(unix.RTM_DELLINK, 0, msg)
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}
