// SPDX-License-Identifier: Apache-2.0

package ipamtest

import (
	"errors"
	"fmt"
	"net/netip"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// ErrLeak means that a bit is set although its address is not covered, and nothing worse. A deleted
// node leaves such bits until the controller collects them.
var ErrLeak = errors.New("leak")

// Covered checks the invariant of the bitmap for one object and the DanmEps of its network: an entry
// or a DanmEp covers the address of each set bit, the bit of each covered address is set, and neither
// two entries nor an entry and the DanmEp of another node have the same address.
func Covered(o *status.Object, endpoints []status.Endpoint) error {
	if o.IPAM == nil {
		return nil
	}
	c := coverage{by: map[netip.Addr]string{}}
	for node, h := range o.IPAM.Held {
		c.addEntry(node, h)
	}
	for _, ep := range endpoints {
		if ep.NetworkUID == "" || ep.NetworkUID == o.UID {
			c.add(ep.Node, ep.V4)
			c.add(ep.Node, ep.V6)
		}
	}
	var leaks []error
	set := map[netip.Addr]bool{}
	for _, b := range []*v1.AddressBitmap{o.IPAM.V4, o.IPAM.V6} {
		used, err := Bits(b)
		c.fail(err)
		for _, a := range used {
			set[a] = true
			if c.by[a] == "" {
				leaks = append(leaks, fmt.Errorf("%w: bit of %v is set, but the address is not covered", ErrLeak, a))
			}
		}
	}
	for a, node := range c.by {
		if !set[a] {
			c.fail(fmt.Errorf("%v is covered by node %q, but its bit is not set", a, node))
		}
	}
	if len(c.errs) == 0 {
		return errors.Join(leaks...)
	}
	return errors.Join(c.errs...)
}

// coverage has the covering node of each address.
type coverage struct {
	by   map[netip.Addr]string
	errs []error
}

func (c *coverage) fail(err error) {
	if err != nil {
		c.errs = append(c.errs, err)
	}
}

func (c *coverage) addEntry(node string, h v1.HeldAddresses) {
	for _, text := range []string{h.V4, h.V6} {
		r, err := ipam.ParseRanges(text)
		c.fail(err)
		if r.Len() > 1<<16 {
			c.fail(fmt.Errorf("entry of node %q has %d addresses", node, r.Len()))
			continue
		}
		for a := range r.All() {
			c.add(node, a)
		}
	}
}

func (c *coverage) add(node string, a netip.Addr) {
	if !a.IsValid() {
		return
	}
	if other, ok := c.by[a]; ok && other != node {
		c.fail(fmt.Errorf("%v is covered by nodes %q and %q", a, other, node))
	}
	c.by[a] = node
}

// Bits returns the addresses whose bits are set in a bitmap, which may be nil.
func Bits(b *v1.AddressBitmap) ([]netip.Addr, error) {
	if b == nil {
		return nil, nil
	}
	p, err := decode(b)
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for a := range p.All() {
		addrs = append(addrs, a)
	}
	return addrs, nil
}

// Allocated is the number of addresses that the bitmaps say they have.
func Allocated(s *v1.IPAMStatus) int64 {
	var n int64
	if s == nil {
		return n
	}
	for _, b := range []*v1.AddressBitmap{s.V4, s.V6} {
		if b != nil {
			n += b.Allocated
		}
	}
	return n
}

// Flip flips the bits of addresses in a bitmap, to damage it. Its number of addresses stays.
func Flip(b *v1.AddressBitmap, addrs ...netip.Addr) error {
	p, err := decode(b)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if !p.Release(a) && !p.MarkAllocated(a) {
			return fmt.Errorf("%v is not in %s", a, b.CIDR)
		}
	}
	b.Pages = p.Encode().Pages
	return nil
}

func decode(b *v1.AddressBitmap) (*ipam.Pool, error) {
	cidr, err := netip.ParsePrefix(b.CIDR)
	if err != nil {
		return nil, fmt.Errorf("parse cidr of bitmap: %w", err)
	}
	return ipam.Decode(ipam.Config{CIDR: cidr}, ipam.State{CIDR: b.CIDR, Cursor: b.Cursor, Pages: b.Pages})
}
