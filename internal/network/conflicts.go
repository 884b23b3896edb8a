// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// Errors of networks that do not go with an older one; errors.Is holds.
var (
	// ErrLinkTaken says that the link's name or identity is taken for something else.
	ErrLinkTaken = errors.New("link is taken")
	// ErrParentShared says that the parent cannot serve both networks.
	ErrParentShared = errors.New("parent cannot serve both networks")
	// ErrPoolOverlap says that two networks could give one address twice.
	ErrPoolOverlap = errors.New("pools overlap")
)

// CheckConflict returns what is wrong with n beside those of others that are older.
func CheckConflict(n *Network, others []*Network) error {
	nets := make([]*Network, 0, len(others)+1)
	for _, o := range others {
		if o.Ref != n.Ref {
			nets = append(nets, o)
		}
	}
	return Conflicts(append(nets, n))[n.Ref]
}

// Conflicts returns what is wrong with networks beside older ones: a link name or
// identity that is taken, a parent that another backend, IPVLAN mode, a trunk or a passthru
// network has, a pool that overlaps on the same segment. Only the younger network
// of two is in the map, so nobody breaks another's network by creating one; and a
// network in the map has no say against others.
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
	refused := map[Ref]error{}
	t := conflictIndex{names: map[string]namedLink{}, links: map[Link][]*Network{}, segments: map[segment][]*Network{}}
	for _, n := range byAge {
		if err := t.add(n); err != nil {
			refused[n.Ref] = err
		}
	}
	return refused
}

// conflictIndex is who has which link names, links and segments, oldest first.
type conflictIndex struct {
	names    map[string]namedLink
	links    map[Link][]*Network
	segments map[segment][]*Network
}

// namedLink is the link that a name is for, and the oldest network on it.
type namedLink struct {
	link  Link
	owner *Network
}

// segment is the layer 2 segment that a network is on, as far as its spec tells:
// the same device or device pool and the same VLAN or VXLAN.
type segment struct {
	device, pool string
	vlan, vxlan  int
}

// add adds n, or says why it does not go with what is there.
func (t *conflictIndex) add(n *Network) error {
	link, hasLink := n.Link()
	if hasLink {
		if err := t.checkLink(n, link); err != nil {
			return err
		}
	}
	seg, hasSegment := n.segment()
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

// checkLink: older networks on the same link come first, then those on another
// link that has one of the names.
func (t *conflictIndex) checkLink(n *Network, link Link) error {
	if !link.IsNIC() && n.LinkName() == n.Device {
		return n.conflictError(ErrLinkTaken, field.NewPath("spec", "NetworkID"), n.ID,
			"%s would name its link %q as the NIC below it: use another NetworkID", n.Ref, n.Device)
	}
	for _, o := range t.links[link] {
		if err := checkSharedParent(n, o, link); err != nil {
			return err
		}
	}
	// The NIC's name is taken too: no link of ours may have it. And so is the name that
	// n would give a link which an older network has named: n names it when that one
	// goes, and is the older one after a change. So a conflict is one of two networks,
	// whoever else is there.
	for _, name := range []string{n.Device, n.LinkName()} {
		taken, ok := t.names[name]
		if want := linkNamed(name, n, link); ok && taken.link != want {
			path, value := field.NewPath("spec", "NetworkID"), n.ID
			if name == n.Device {
				path, value = optionPath("host_device"), n.Device
			}
			return n.conflictError(ErrLinkTaken, path, value, "%s would use %q as %s, and %s has it as %s: use another NetworkID or device",
				n.Ref, name, want, n.visibleName(taken.owner), taken.link)
		}
	}
	return nil
}

// modePassthru is the MACVLAN mode that takes the parent for one interface.
const modePassthru = "passthru"

// checkSharedParent says why n cannot be on the link of the older network o.
func checkSharedParent(n, o *Network, link Link) error {
	if n.Device != o.Device {
		return n.conflictError(ErrLinkTaken, optionPath("host_device"), n.Device, "%s wants %s on %s, and %s has it on %s: use host_device %s or another vxlan",
			n.Ref, link, n.Device, n.visibleName(o), o.Device, o.Device)
	}
	if n.Delegates() || o.Delegates() {
		return nil // how another plugin uses its parent is its own matter
	}
	switch {
	case n.Type != o.Type:
		return n.conflictError(ErrParentShared, field.NewPath("spec", "NetworkType"), n.Type, "%s is %s, and %s on the same parent %s is %s: use one NetworkType on a parent",
			n.Ref, n.Type, n.visibleName(o), link, o.Type)
	case n.Type == v1.TypeIPVLAN && n.Mode != o.Mode:
		return n.conflictError(ErrParentShared, field.NewPath("spec", "NetworkType"), n.Type, "%s is IPVLAN in mode %q, and %s on the same parent %s in mode %q: use one mode on a parent",
			n.Ref, n.Mode, n.visibleName(o), link, o.Mode)
	case n.Trunk != o.Trunk:
		return n.conflictError(ErrParentShared, optionPath("trunk"), n.Trunk, "%s and %s are both on %s, which passes VLAN tags of all Pods or of none: use the same trunk, another device or a VLAN",
			n.Ref, n.visibleName(o), link)
	case n.Mode == modePassthru || o.Mode == modePassthru:
		return n.conflictError(ErrParentShared, optionPath("host_device"), n.Device, "%s and %s are both on %s, and a passthru network has its parent to itself: use another device or VLAN",
			n.Ref, n.visibleName(o), link)
	}
	return nil
}

// checkPoolOverlap says why the pools of n and the older network o on the same segment
// could give one address twice. Disjoint pools of one subnet are fine.
func checkPoolOverlap(n, o *Network) error {
	for _, pair := range []struct {
		field   string
		ours, s *Subnet
	}{{"allocation_pool", n.V4, o.V4}, {"allocation_pool_v6", n.V6, o.V6}} {
		if pair.ours == nil || pair.s == nil || !pair.ours.poolOverlaps(pair.s) {
			continue
		}
		ours := fmt.Sprintf("%s-%s", pair.ours.Start, pair.ours.End)
		return n.conflictError(ErrPoolOverlap, optionPath(pair.field), ours, "%s of %s is %s, and %s on the same segment has %s-%s: use disjoint pools",
			pair.field, n.Ref, ours, n.visibleName(o), pair.s.Start, pair.s.End)
	}
	return nil
}

func (t *conflictIndex) record(n *Network, link Link) {
	claim := func(name string) {
		if _, ok := t.names[name]; !ok {
			t.names[name] = namedLink{link: linkNamed(name, n, link), owner: n}
		}
	}
	claim(n.LinkName())
	claim(n.Device)
	t.links[link] = append(t.links[link], n)
}

// linkNamed returns what name stands for in n: its link or the NIC below.
func linkNamed(name string, n *Network, link Link) Link {
	if name == n.Device {
		return Link{Device: n.Device}
	}
	return link
}

func optionPath(name string) *field.Path { return field.NewPath("spec", "Options", name) }
