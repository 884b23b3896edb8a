// SPDX-License-Identifier: Apache-2.0

package kernel

import (
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

// finish gives a half-made link its alias and takes it out of the birth group.
func finish(owner string) []nl.NetlinkRequestData {
	return []nl.NetlinkRequestData{
		nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(alias(owner))),
		nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(0)),
	}
}
