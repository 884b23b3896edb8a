// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// Errors of networks that conflict with an older one, for errors.Is.
var (
	// ErrLinkTaken: the name or the identity of the link is taken.
	ErrLinkTaken = errors.New("link is taken")
	// ErrParentShared: both networks cannot be on one parent.
	ErrParentShared = errors.New("parent cannot serve both networks")
	// ErrPoolOverlap: two networks could assign one address twice.
	ErrPoolOverlap = errors.New("pools overlap")
)

// CheckConflict returns the conflict of n with an older one of the others, or nil.
func CheckConflict(n *Network, others []*Network) error {
	nets := make([]*Network, 0, len(others)+1)
	for _, o := range others {
		if o.Ref != n.Ref {
			nets = append(nets, o)
		}
	}
	return Conflicts(append(nets, n))[n.Ref]
}

// Conflicts returns the conflicts of networks with older ones: a link name or identity that is taken,
// a parent with another backend, IPVLAN mode, trunk or a passthru network, or a pool that overlaps on
// the same segment. Only the younger network of two is in the map, so that a new network never breaks
// an existing one. A network in the map does not conflict with others.
func Conflicts(nets []*Network) map[Ref]error {
	byAge := slices.Clone(nets)
	slices.SortStableFunc(byAge, func(a, b *Network) int {
		switch {
		case a.Older(b):
			return -1
		case b.Older(a):
			return 1
		}
		return 0
	})
	conflicts := map[Ref]error{}
	t := conflictIndex{names: map[string]namedLink{}, links: map[Link][]*Network{}, segments: map[segment][]*Network{}}
	for _, n := range byAge {
		if err := t.add(n); err != nil {
			conflicts[n.Ref] = err
		}
	}
	return conflicts
}

// conflictIndex has the networks by link name, link and segment, oldest first.
type conflictIndex struct {
	names    map[string]namedLink
	links    map[Link][]*Network
	segments map[segment][]*Network
}

// namedLink is the link of a name, and the oldest network on it.
type namedLink struct {
	link  Link
	owner *Network
}

// segment is the layer 2 segment of a network according to its spec: the device or device pool, and
// the VLAN or VXLAN.
type segment struct {
	device, pool string
	vlan, vxlan  int
}

// add adds n, or returns its conflict with a network in the index.
func (t *conflictIndex) add(n *Network) error {
	link, hasLink := n.Link()
	if hasLink {
		if err := t.checkLink(n, link); err != nil {
			return err
		}
	}
	seg, hasSegment := segmentOf(n)
	if hasSegment {
		for _, o := range t.segments[seg] {
			if err := checkPoolOverlap(n, o); err != nil {
				return err
			}
		}
		t.segments[seg] = append(t.segments[seg], n)
	}
	if hasLink {
		t.record(n, link)
	}
	return nil
}

// segmentOf returns false for a network without a device, whose segment is unknown.
func segmentOf(n *Network) (segment, bool) {
	if n.VXLAN != 0 && n.Device != "" {
		return segment{vxlan: n.VXLAN}, true // one VNI is one segment, whatever its NIC
	}
	s := segment{device: n.Device, pool: n.DevicePool, vlan: n.VLAN, vxlan: n.VXLAN}
	return s, n.Device != "" || n.DevicePool != ""
}

// checkLink checks n against older networks on the same link, then against those on another link with
// one of its names.
func (t *conflictIndex) checkLink(n *Network, link Link) error {
	if !link.IsNIC() && n.LinkName() == n.Device {
		return conflictError(n, ErrLinkTaken, field.NewPath("spec", "NetworkID"), n.ID,
			"must not give the link the name %q of its own NIC: use another NetworkID", n.Device)
	}
	for _, o := range t.links[link] {
		if err := checkSharedParent(n, o, link); err != nil {
			return err
		}
	}
	// The NIC's name is taken too: no link of Patchbay may have it. So is the name that n would
	// give a link that an older network has named: n names the link after the older network is
	// deleted. So a conflict depends on two networks only, whatever other networks exist.
	for _, name := range []string{n.Device, n.LinkName()} {
		taken, ok := t.names[name]
		if own := linkNamed(name, n, link); ok && taken.link != own {
			path, value := field.NewPath("spec", "NetworkID"), n.ID
			if name == n.Device {
				path, value = optionPath("host_device"), n.Device
			}
			return conflictError(n, ErrLinkTaken, path, value, "must not give the name %q to %s, because %s uses it for %s: use another NetworkID",
				name, own, visibleName(n, taken.owner), taken.link)
		}
	}
	return nil
}

// modePassthru is the MACVLAN mode with one interface per parent.
const modePassthru = "passthru"

// checkSharedParent checks that n can be on the link of the older network o.
func checkSharedParent(n, o *Network, link Link) error {
	if n.Device != o.Device {
		return conflictError(n, ErrLinkTaken, optionPath("host_device"), n.Device, "must be %s, because %s has %s there: use host_device %s or another vxlan",
			o.Device, visibleName(n, o), link, o.Device)
	}
	if n.Delegates() || o.Delegates() {
		return nil // the use of the parent by another plugin is unknown
	}
	switch {
	case n.Type != o.Type:
		return conflictError(n, ErrParentShared, field.NewPath("spec", "NetworkType"), n.Type, "must be %s, because %s on the same parent %s has this type: use it, or another device or VLAN",
			o.Type, visibleName(n, o), link)
	case n.Type == v1.TypeIPVLAN && n.Mode != o.Mode:
		return conflictError(n, ErrParentShared, field.NewPath("spec", "NetworkType"), n.Type, "must not be IPVLAN in mode %q, because %s on the same parent %s has mode %q: use one mode on a parent",
			n.Mode, visibleName(n, o), link, o.Mode)
	case n.Trunk != o.Trunk:
		return conflictError(n, ErrParentShared, optionPath("trunk"), n.Trunk, "must be %t as in %s, because %s passes the VLAN tags of all Pods or of none: use the same trunk, another device or a VLAN",
			o.Trunk, visibleName(n, o), link)
	case n.Mode == modePassthru || o.Mode == modePassthru:
		return conflictError(n, ErrParentShared, optionPath("host_device"), n.Device, "must have no other network, because a passthru network needs a parent of its own, and %s is on %s: use another device or VLAN",
			visibleName(n, o), link)
	}
	return nil
}

// checkPoolOverlap checks that the pools of n and the older network o on the same segment are
// disjoint. Both may be of one subnet.
func checkPoolOverlap(n, o *Network) error {
	for _, pair := range []struct {
		field        string
		young, older *Subnet
	}{{"allocation_pool", n.V4, o.V4}, {"allocation_pool_v6", n.V6, o.V6}} {
		if pair.young == nil || pair.older == nil || !pair.young.poolOverlaps(pair.older) {
			continue
		}
		pool := fmt.Sprintf("%s-%s", pair.young.Start, pair.young.End)
		return conflictError(n, ErrPoolOverlap, optionPath(pair.field), pool, "must not overlap %s-%s, the pool of %s on the same segment: use disjoint pools",
			pair.older.Start, pair.older.End, visibleName(n, o))
	}
	return nil
}

func (t *conflictIndex) record(n *Network, link Link) {
	take := func(name string) {
		if _, ok := t.names[name]; !ok {
			t.names[name] = namedLink{link: linkNamed(name, n, link), owner: n}
		}
	}
	take(n.LinkName())
	take(n.Device)
	t.links[link] = append(t.links[link], n)
}

// linkNamed returns the link of the name in n: its own link or the NIC below it.
func linkNamed(name string, n *Network, link Link) Link {
	if name == n.Device {
		return Link{Device: n.Device}
	}
	return link
}

// conflictError is an error of n that names the conflicting field. Kind is one of the errors above,
// for errors.Is: the text states the rule instead.
func conflictError(n *Network, kind error, path *field.Path, value any, rule string, args ...any) error {
	return &InvalidError{Subject: n.Ref.String(), Faults: field.ErrorList{field.Invalid(path, value, fmt.Sprintf(rule, args...))}, Err: kind}
}

// visibleName returns the name of another network for a message about n, which the readers of n see.
// The readers of a network in a namespace are its tenants, who may not see the networks of other
// namespaces or ClusterNetworks for other tenants.
func visibleName(n, o *Network) string {
	if n.Ref.Namespace == "" || o.Allows(n.Ref.Namespace) {
		return o.Ref.String()
	}
	return "a network that is not for this namespace"
}

func optionPath(name string) *field.Path { return field.NewPath("spec", "Options", name) }
