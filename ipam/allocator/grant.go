// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// claim is a call of Allocator.Claim.
type claim struct {
	// net is the network as the caller knows it.
	net    *network.Network
	v4, v6 AddressRequest
	// since is when it was queued.
	since time.Time
	// tentative are the addresses of the last plan, for a claim whose response was lost.
	tentative []netip.Addr
	// addrs is the result.
	addrs []netip.Addr
}

// isDynamic reports whether a warm pool could have served the claim.
func (c *claim) isDynamic() bool { return !c.v4.Static.IsValid() && !c.v6.Static.IsValid() }

// isStale reports whether the subnet of a requested family differs from what the caller knows.
func (c *claim) isStale(now *network.Network) bool {
	differ := func(r AddressRequest, a, b *network.Subnet) bool {
		return r != AddressRequest{} && a != nil && b != nil && a.CIDR != b.CIDR
	}
	return differ(c.v4, c.net.V4, now.V4) || differ(c.v6, c.net.V6, now.V6)
}

// reclaimEvery is how often a node requests that others give back their warm addresses.
const reclaimEvery = 5 * time.Second

// errElsewhere means that another node's entry has the requested address. That node may have
// only pre-allocated it.
var errElsewhere = errors.New("other nodes were asked to free their warm addresses")

// serveClaims grants the claims: first those that were already granted, then static addresses,
// so that no dynamic claim of the same write takes one of them.
func (p *planner) serveClaims() {
	var static, dynamic []*claim
	refusal := p.refusal()
	for _, c := range p.claims {
		tentative := p.tentative[c]
		switch {
		case refusal != nil:
			p.answers = append(p.answers, answer{to: c, err: refusal})
		case c.isStale(p.obj.Network):
			delete(p.tentative, c)
			p.answers = append(p.answers, answer{to: c, err: fmt.Errorf("%w: its subnet was changed just now", status.ErrTryAgain)})
		case len(tentative) > 0:
			p.answers = append(p.answers, answer{to: c, addrs: tentative})
		case c.v4.Static.IsValid() || c.v6.Static.IsValid():
			static = append(static, c)
		default:
			dynamic = append(dynamic, c)
		}
	}
	requestReclaim := false
	for _, c := range append(static, dynamic...) {
		addrs, err := p.take(c)
		if !p.withdraw.isEmpty() {
			return
		}
		p.tentative[c] = addrs
		if errors.Is(err, errElsewhere) && p.now.Sub(c.since) < p.reclaimTimeout {
			p.starved = true
			requestReclaim = requestReclaim || p.mayBeWarmElsewhere(c)
			continue
		}
		p.answers = append(p.answers, answer{to: c, addrs: addrs, err: err})
	}
	for _, a := range p.answers {
		if a.err == nil && a.to.isDynamic() {
			p.served++
		}
	}
	if requestReclaim {
		p.requestReclaim()
	}
}

// refusal returns why no address of the network can be claimed now.
func (p *planner) refusal() error {
	switch {
	case p.obj.Deleting:
		return fmt.Errorf("%w: wait until it is deleted, and create it again", ErrDeleting)
	case p.obj.Invalid != nil:
		return p.obj.Invalid
	case p.draft.Recovering() && !status.Recovering(p.draft.Next.IPAM):
		return fmt.Errorf("%w: this node reported too many rollbacks of the network; the network's condition RecoveryDeferred says until when the node gets no address", status.ErrTryAgain)
	case p.draft.Recovering():
		return fmt.Errorf("%w: the network is recovering from a rollback until every node has reported its addresses; the network's condition Recovering names the awaited nodes", status.ErrTryAgain)
	}
	return nil
}

// take allocates one address per requested family, or none.
func (p *planner) take(c *claim) ([]netip.Addr, error) {
	addrs := make([]netip.Addr, 0, 2)
	for _, side := range [...]struct {
		family  *status.Family
		request AddressRequest
	}{{&p.draft.V4, c.v4}, {&p.draft.V6, c.v6}} {
		if !side.request.Dynamic && !side.request.Static.IsValid() {
			continue
		}
		a, err := p.takeOne(side.family, side.request)
		if err != nil {
			for _, a := range addrs {
				p.draft.Family(a).Release(a)
				p.draft.Entry.Of(a).Remove(a)
			}
			return nil, err
		}
		p.draft.Entry.Of(a).Add(a)
		addrs = append(addrs, a)
	}
	return addrs, nil
}

func (p *planner) takeOne(f *status.Family, r AddressRequest) (netip.Addr, error) {
	switch {
	case f.Former:
		return netip.Addr{}, fmt.Errorf("claim %s address: %w: %v; delete the Pods on it, or change the subnet back",
			f.Name, ErrSubnetInUse, f.Pool.CIDR())
	case f.Pool == nil:
		return netip.Addr{}, fmt.Errorf("claim %s address: %w", f.Name, ErrNoSubnet)
	case r.Static.IsValid():
		return r.Static, p.takeStatic(f, r.Static)
	}
	a, ok := f.Pool.AllocateNext()
	if !ok {
		err := fmt.Errorf("claim %s address: %w: all %d dynamic addresses of %v are in use; delete Pods, or %s",
			f.Name, ErrExhausted, f.Pool.Capacity(), f.Pool.CIDR(), f.Subnet.GrowthAdvice(p.obj.Network))
		return a, p.orElsewhere(err, func(e *status.Entry) bool { return e.HasReclaimable(f.Pool.CIDR().Addr()) })
	}
	return a, nil
}

func (p *planner) takeStatic(f *status.Family, a netip.Addr) error {
	if slices.Contains(f.Reserved(), a) {
		return fmt.Errorf("claim static address %v: %w: must not be a gateway of the network's routes or a node's address: request another", a, ErrOutside)
	}
	if !f.Subnet.AllowsStatic(a) {
		return fmt.Errorf("claim static address %v: %w: must be in spec.Options.static_pool: request another", a, ErrOutside)
	}
	err := f.Pool.Allocate(a)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ipam.ErrAllocated) && p.takeUnused(a):
		return nil
	case errors.Is(err, ipam.ErrAllocated):
		return p.orElsewhere(&TakenError{Addr: a, Owner: p.ownerOf(a)}, func(e *status.Entry) bool { return e.Contains(a) && !e.IsQuarantined(a) })
	}
	return fmt.Errorf("claim static address: %w: %w", ErrOutside, err)
}

// takeUnused takes a static address that this node covers and does not use. It reports false if
// the address is in use, or must be withdrawn from the warm pool first.
func (p *planner) takeUnused(a netip.Addr) bool {
	if !p.draft.Entry.Contains(a) {
		return false
	}
	switch p.state(a) {
	case cooling, quarantined: // the caller probes the network before it uses a static address
		p.free(a)
		p.gone = append(p.gone, a)
		return true
	case warm:
		if slices.Contains(p.warm.of(a), a) {
			p.withdraw.addrs = append(p.withdraw.addrs, a)
		}
	default:
	}
	return false
}

// ownerOf describes the owner of an address, from the entries in the object. It returns "" if no entry
// has the address: then a DanmEp has it.
func (p *planner) ownerOf(a netip.Addr) string {
	if p.draft.Entry.Contains(a) {
		return "a Pod that is starting or stopping on this node"
	}
	others := p.draft.Others()
	slices.SortFunc(others, func(a, b status.NamedEntry) int { return strings.Compare(a.Name, b.Name) })
	for _, o := range others {
		switch {
		case o.Err != nil || !o.Contains(a):
		case o.IsQuarantined(a):
			return fmt.Sprintf("another machine, as node %q found; remove it there, or request another address", o.Name)
		case status.IsNode(o.Name):
			return fmt.Sprintf("node %q, for a Pod that is starting or stopping there", o.Name)
		default:
			return fmt.Sprintf("status.ipam.held[%q]: something that is not a Pod has it; remove it from the network, or request another address", o.Name)
		}
	}
	return ""
}

// orElsewhere adds errElsewhere to an error if another node's entry has what was requested.
func (p *planner) orElsewhere(err error, has func(*status.Entry) bool) error {
	for _, o := range p.draft.Others() {
		if status.IsNode(o.Name) && o.Err == nil && has(o.Entry) {
			return fmt.Errorf("%w; %w", err, errElsewhere)
		}
	}
	return err
}

// mayBeWarmElsewhere reports whether other nodes may have pre-allocated what a claim requests. A
// static address outside of the dynamic range is never pre-allocated.
func (p *planner) mayBeWarmElsewhere(c *claim) bool {
	for _, a := range status.Valid(c.v4.Static, c.v6.Static) {
		if p.draft.Family(a).IsAllocatable(a) {
			return true
		}
	}
	return c.isDynamic()
}

// requestReclaim requests that other nodes free their warm addresses.
func (p *planner) requestReclaim() {
	s := p.draft.Next.IPAM
	if last := s.ReclaimRequestTime; last == nil || p.now.Sub(last.Time) >= reclaimEvery || last.After(p.now) {
		now := metav1.NewMicroTime(p.now)
		s.ReclaimRequestTime = &now
	}
}
