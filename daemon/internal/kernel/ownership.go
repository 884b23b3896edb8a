// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// aliasPrefix opens the alias of every link that this program made.
	aliasPrefix = "patchbay:"
	// maxAlias is IFALIASZ without the final zero.
	maxAlias = 255
	// unfinishedGroup is the link group of a link that has no alias yet ("pb").
	unfinishedGroup = 0x7062
	// skipStats is RTEXT_FILTER_SKIP_STATS: counters are most of an answer.
	skipStats = 1 << 3
)

// ownerAlias marks a link as ours and says whose it is.
func ownerAlias(owner string) string {
	a := aliasPrefix + owner
	if len(a) > maxAlias {
		return a[:maxAlias]
	}
	return a
}

// isManaged tells links that this program made, finished or not.
func isManaged(l *netlink.LinkAttrs) bool {
	return len(l.Alias) >= len(aliasPrefix) && l.Alias[:len(aliasPrefix)] == aliasPrefix || isUnfinished(l)
}

// isUnfinished tells links of ours whose making was interrupted.
func isUnfinished(l *netlink.LinkAttrs) bool {
	return l.Alias == "" && l.Group == unfinishedGroup
}

// finishAttributes gives a half-made link its alias and takes it out of the birth group.
func finishAttributes(owner string) []nl.NetlinkRequestData {
	return []nl.NetlinkRequestData{
		nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(ownerAlias(owner))),
		nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(0)),
	}
}
