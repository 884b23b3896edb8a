// SPDX-License-Identifier: Apache-2.0

// Package netns makes and uses the named network namespaces (ip-netns(8)) that hold
// everything of a lab that has an address, so that none of it touches the machine's
// own network.
package netns
