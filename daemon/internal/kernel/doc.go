// SPDX-License-Identifier: Apache-2.0

// Package kernel makes links, addresses, routes and forwarding entries through
// netlink, in the host's and in Pods' network namespaces. It is the only package
// that imports netlink and netns.
//
// Nearly every route netlink message takes the kernel's one RTNL lock, and a
// link's deletion holds it for an RCU grace period. With many Pods in flight the
// time of an attachment is therefore the number of messages: requests here are
// built by hand where the library would send two or three.
//
// What it makes is marked in the link's alias, "patchbay:" and an identity. A
// link cannot get an alias at birth (the kernel reads IFLA_IFALIAS only when a
// link is changed), so it is born in a link group of ours, and leaves that group
// in the message that sets the alias. A link in that group is half made: a
// process died over it, and it may be removed. Nothing else without the mark is
// ever changed or removed.
package kernel
