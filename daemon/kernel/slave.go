// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/network"
)

// Kinds of slaves, as the kernel names them.
const (
	// IPVLAN slaves share their parent's MAC.
	IPVLAN = "ipvlan"
	// MACVLAN slaves have a MAC each.
	MACVLAN = "macvlan"
)

// Slave is an interface of a Pod on top of a host link.
type Slave struct {
	// Netns is the path of the Pod's network namespace.
	Netns string
	// Name in the Pod, 1 to 15 bytes.
	Name string
	// Kind is IPVLAN or MACVLAN.
	Kind string
	// Mode is l2 (the default), l3 or l3s of an IPVLAN; bridge (the default),
	// private, vepa or passthru of a MACVLAN.
	Mode string
	// Parent is the name of the host link below.
	Parent string
	// MTU in bytes, at most the parent's; 0 is the parent's.
	MTU int
	// MAC of a new MACVLAN; nil is a random one. An IPVLAN has its parent's.
	MAC net.HardwareAddr
	// Owner says in the link's alias whose it is: the network.
	Owner string
	// V4 and V6 are addresses with the subnet's length; the zero Prefix is none.
	// Without V6 the interface has no IPv6 at all.
	V4, V6 netip.Prefix
	// Routes go into the main table; those of a family without address are left out.
	Routes []network.Route
	// Table holds PolicyRoutes, which are asked for packets from V4 or V6 only.
	Table int
	// PolicyRoutes of both families; they need a Table.
	PolicyRoutes []network.Route
}

// Outcome is what an attachment came to be.
type Outcome struct {
	// Index of the link in the Pod's namespace.
	Index int
	// MAC in the colon notation.
	MAC string
	// MTU in bytes.
	MTU int
}

// check says what could never succeed, before anything is touched.
func (s *Slave) check() error {
	if !validName(s.Name) {
		return fmt.Errorf("%w: interface name %q: want 1 to %d bytes without white space, '/' or ':'", ErrInvalid, s.Name, maxName)
	}
	if _, err := s.info(); err != nil {
		return err
	}
	if len(s.PolicyRoutes) > 0 && s.Table == 0 {
		return fmt.Errorf("%w: policy routes need a routing table (rt_tables) in the network", ErrInvalid)
	}
	return nil
}

// maxName is IFNAMSIZ without the final zero.
const maxName = unix.IFNAMSIZ - 1

// validName follows the kernel's dev_valid_name; names become parts of paths.
func validName(name string) bool {
	return name != "" && len(name) <= maxName && name != "." && name != ".." &&
		!strings.ContainsAny(name, "/: \t\n\v\f\r%\x00")
}
