// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
)

// claim is a caller of Claim in wait.
type claim struct {
	// net is the network as the caller knows it.
	net    *network.Network
	v4, v6 Want
	// since is when the caller came.
	since time.Time
	// tentative are the addresses of the last plan, for one whose answer is lost.
	tentative []netip.Addr
	// gone says that the caller gave up.
	gone bool
	// done is closed when answer is there.
	done   chan struct{}
	answer grant
}

// grant is the answer to a claim.
type grant struct {
	to    *claim
	addrs []netip.Addr
	err   error
}

// serve grants the claims: first those that were granted already, then static
// addresses, so that no dynamic claim of the same write takes one of them.
func (p *planner) serve(kept map[netip.Addr]bool) {
	var static, dynamic []*claim
	refused := p.refusal()
	for _, c := range p.claims {
		switch {
		case refused != nil:
			p.grants = append(p.grants, grant{to: c, err: refused})
		case c.stale(p.obj.Network):
			c.tentative = nil
			p.grants = append(p.grants, grant{to: c, err: fmt.Errorf("%w: its subnet was changed just now", ErrTryAgain)})
		case len(c.tentative) > 0 && kept[c.tentative[0]]:
			p.grants = append(p.grants, grant{to: c, addrs: c.tentative})
		case c.v4.Static.IsValid() || c.v6.Static.IsValid():
			static = append(static, c)
		default:
			dynamic = append(dynamic, c)
		}
	}
	for _, c := range append(static, dynamic...) {
		addrs, err := p.take(c)
		c.tentative = addrs
		if errors.Is(err, errElsewhere) && p.now.Sub(c.since) < p.cfg.Patience {
			p.starved = true
			p.urgent = p.urgent || p.maybeHeld(c)
			continue
		}
		p.grants = append(p.grants, grant{to: c, addrs: addrs, err: err})
	}
	for _, g := range p.grants {
		if g.err == nil && g.to.dynamic() {
			p.served++
		}
	}
	if p.urgent {
		p.press()
	}
}

// dynamic reports whether a hold could have served the claim.
func (c *claim) dynamic() bool { return !c.v4.Static.IsValid() && !c.v6.Static.IsValid() }

// stale reports whether a wanted family has another subnet than the caller knows.
func (c *claim) stale(now *network.Network) bool {
	differ := func(w Want, a, b *network.Subnet) bool {
		return w != Want{} && a != nil && b != nil && a.CIDR != b.CIDR
	}
	return differ(c.v4, c.net.V4, now.V4) || differ(c.v6, c.net.V6, now.V6)
}

// refusal is why the network gives no addresses now.
func (p *planner) refusal() error {
	switch {
	case p.obj.Deleting:
		return fmt.Errorf("%w: wait until it is gone and made again", ErrDeleting)
	case p.obj.Invalid != nil:
		return p.obj.Invalid
	case p.recovering() && !recovering(p.next.IPAM):
		return fmt.Errorf("%w: this node reported too many rollbacks of the network, whose condition RecoveryDeferred says until when it gives out no address", ErrTryAgain)
	case p.recovering():
		return fmt.Errorf("%w: the network is recovering from older state until every node has said what it uses; its condition Recovering names those awaited", ErrTryAgain)
	}
	return nil
}

// take takes one address per wanted family, or none.
func (p *planner) take(c *claim) ([]netip.Addr, error) {
	addrs := make([]netip.Addr, 0, 2)
	for _, side := range [...]struct {
		family *family
		want   Want
	}{{&p.v4, c.v4}, {&p.v6, c.v6}} {
		if !side.want.Dynamic && !side.want.Static.IsValid() {
			continue
		}
		a, err := p.takeOne(side.family, side.want)
		if err != nil {
			for _, a := range addrs {
				p.family(a).release(a)
				p.entry.of(a).Remove(a)
			}
			return nil, err
		}
		p.entry.of(a).Add(a)
		addrs = append(addrs, a)
	}
	return addrs, nil
}

func (p *planner) takeOne(f *family, w Want) (netip.Addr, error) {
	switch {
	case f.former:
		return netip.Addr{}, fmt.Errorf("claim %s address: %w: %v; delete the Pods on it, or change the subnet back",
			f.name, ErrSubnetInUse, f.pool.CIDR())
	case f.pool == nil:
		return netip.Addr{}, fmt.Errorf("claim %s address: %w", f.name, ErrNoSubnet)
	case w.Static.IsValid():
		return w.Static, p.takeStatic(f, w.Static)
	}
	a, ok := f.pool.AllocateNext()
	if !ok {
		err := fmt.Errorf("claim %s address: %w: all %d dynamic addresses of %v are in use; delete Pods or enlarge %s",
			f.name, ErrExhausted, f.pool.Capacity(), f.pool.CIDR(), f.fields)
		return a, p.orElsewhere(err, func(e *entry) bool { return e.givesBack(f.pool.CIDR().Addr()) })
	}
	return a, nil
}

func (p *planner) takeStatic(f *family, a netip.Addr) error {
	if slices.Contains(f.config().Reserved, a) {
		return fmt.Errorf("claim static address %v: %w: it is a gateway of the network's routes, or a node's own; ask for another", a, ErrOutside)
	}
	if !f.spec.AllowsStatic(a) {
		return fmt.Errorf("claim static address %v: %w: it is outside spec.Options.static_pool; ask for another", a, ErrOutside)
	}
	err := f.pool.Allocate(a)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ipam.ErrAllocated) && p.unused(a):
		return nil
	case errors.Is(err, ipam.ErrAllocated):
		err := fmt.Errorf("claim static address %v: %w by %s", a, ErrTaken, p.holder(a))
		return p.orElsewhere(err, func(e *entry) bool { return e.contains(a) && !e.quarantinedOf(a).Contains(a) })
	}
	return fmt.Errorf("claim static address: %w: %w", ErrOutside, err)
}

// holder says who has an address, as far as the object tells.
func (p *planner) holder(a netip.Addr) string {
	if p.entry.contains(a) {
		return "a Pod that is starting or stopping on this node"
	}
	for name, h := range p.held {
		switch e, err := parseEntry(h); {
		case err != nil || !e.contains(a):
		case e.quarantinedOf(a).Contains(a):
			return fmt.Sprintf("another machine, as node %q found; remove it there, or ask for another address", name)
		case ofNode(name):
			return fmt.Sprintf("node %q, for a Pod that is starting or stopping there", name)
		default:
			return fmt.Sprintf("status.ipam.held[%q]: something that is no Pod answered there; remove it from the wire, or ask for another", name)
		}
	}
	return "a Pod: find it with `kubectl get danmeps -A`"
}
