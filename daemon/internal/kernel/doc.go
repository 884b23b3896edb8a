// SPDX-License-Identifier: Apache-2.0

// Package kernel creates links, addresses, routes and forwarding entries through netlink, in
// the host's and in Pods' network namespaces. It is the only package that imports netlink
// and netns.
//
// Nearly every route netlink message takes the kernel's one RTNL lock, and the deletion of a
// link holds it for an RCU grace period. The duration of an attachment therefore grows with
// the number of messages. The package builds requests by hand where the library would send
// two or three.
//
// A link that Patchbay manages has the alias "patchbay:" and an identity. The kernel does not
// accept an alias in the message that creates a link (it reads IFLA_IFALIAS only when a link
// changes). A new link is therefore in a link group of Patchbay's until the message that
// sets the alias. A link in that group without an alias is unfinished: the process ended
// before the link was complete, and the link may be deleted. The package changes and deletes
// no other link without the alias.
package kernel
