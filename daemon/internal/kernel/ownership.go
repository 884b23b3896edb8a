// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// aliasPrefix is the prefix of the alias of every managed link.
	aliasPrefix = "patchbay:"
	// maxAlias is IFALIASZ without the final zero.
	maxAlias = 255
	// unfinishedGroup is the link group of a managed link that has no alias yet ("pb").
	unfinishedGroup = 0x7062
	// skipStats is RTEXT_FILTER_SKIP_STATS: counters are most of the size of an answer.
	skipStats = 1 << 3
)

// ownerAlias is the alias of a managed link, with its owner.
func ownerAlias(owner string) string {
	a := aliasPrefix + owner
	if len(a) > maxAlias {
		return a[:maxAlias]
	}
	return a
}

// isManaged reports whether Patchbay created the link, finished or not.
func isManaged(l *netlink.LinkAttrs) bool {
	return len(l.Alias) >= len(aliasPrefix) && l.Alias[:len(aliasPrefix)] == aliasPrefix || isUnfinished(l)
}

// isUnfinished reports whether the creation of a managed link was interrupted.
func isUnfinished(l *netlink.LinkAttrs) bool {
	return l.Alias == "" && l.Group == unfinishedGroup
}

// finishAttributes give an unfinished link its alias, and remove it from unfinishedGroup.
func finishAttributes(owner string) []nl.NetlinkRequestData {
	return []nl.NetlinkRequestData{
		nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(ownerAlias(owner))),
		nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(0)),
	}
}
