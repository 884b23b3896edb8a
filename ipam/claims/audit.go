// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
)

// Drift is by how much a bitmap was wrong.
type Drift struct {
	// Freed bits were set, and nobody covered them; Marked bits were covered, and
	// not set.
	Freed, Marked int64
}

// Findings is what an audit found, and corrected where a bit can be corrected.
type Findings struct {
	Drift
	// Conflicts are the addresses that have two owners, in order.
	Conflicts []Conflict
}

// Conflict is an address with two owners.
type Conflict struct {
	Addr netip.Addr
	// Owners are at least two, in order.
	Owners []Owner
}

// Owner is a DanmEp that has an address, or a node whose entry covers it for a Pod
// that is starting or stopping, or for none yet.
type Owner struct {
	// Namespace, Pod and PodUID name the DanmEp's Pod; empty for an entry.
	Namespace, Pod, PodUID string
	// Endpoint is the DanmEp's name; empty for an entry.
	Endpoint string
	// Node is the name of the node.
	Node string
}

// compare orders owners.
func (o Owner) compare(other Owner) int {
	return cmp.Or(cmp.Compare(o.Namespace, other.Namespace), cmp.Compare(o.Pod, other.Pod),
		cmp.Compare(o.Endpoint, other.Endpoint), cmp.Compare(o.Node, other.Node))
}

// errLookAgain says that two requests are not enough to tell a conflict from an
// address that has changed hands between them.
var errLookAgain = errors.New("look again")

// Audit compares the bitmaps with entries and DanmEps: it frees the bits that neither
// covers, sets those that are covered and clear, and reports the addresses that have
// two owners. Claims that come meanwhile make it begin afresh. ErrUnknownState says
// that an entry cannot be read, and that nothing was freed; a network that is gone, or
// another of that name, is ErrNotFound.
func (s *Steward) Audit(ctx context.Context, key Key) (Findings, error) {
	var found Findings
	var unknown error
	var listed map[string]bool // the DanmEps that existed before the object was read
	err := s.change(ctx, "audit", key, func(p *planner) error {
		p.mend()
		p.sweep()
		conflicts, unsure := p.conflicts(func(uid string) bool { return listed[uid] })
		first := listed == nil
		if listed = p.listed(); unsure && first {
			return errLookAgain
		}
		found, unknown = Findings{Drift{p.collected, p.marked}, conflicts}, p.collectErr
		return nil
	})
	if err != nil {
		return Findings{}, err // nothing was written
	}
	return found, unknown
}

// Suspect reports whether Audit may find something. An object and endpoints from
// caches, which may be behind, will do.
func Suspect(o *Object, endpoints []Endpoint) (bool, error) {
	if o.IPAM == nil {
		return false, nil
	}
	cfg := Config{}.withDefaults()
	p := plannerOf(&cfg, o, endpoints)
	p.read()
	if err := p.open(); err != nil {
		return false, err
	}
	p.mend()
	p.sweep()
	conflicts, _ := p.conflicts(func(string) bool { return true })
	return p.marked+p.collected > 0 || len(conflicts) > 0, p.collectErr
}

// listed returns the UIDs of the DanmEps.
func (p *planner) listed() map[string]bool {
	uids := make(map[string]bool, len(p.endpoints))
	for _, e := range p.endpoints {
		uids[e.UID] = true
	}
	return uids
}

// conflicts returns the addresses that have two owners. Two DanmEps of one list, and
// two entries of one object, have theirs at the same time. An entry and another node's
// DanmEp need not: between the two reads the node may have released the address, and
// the other claimed it. They do if the DanmEp existed before the object was read, as
// before reports; else conflicts leaves the entry out, and is unsure.
func (p *planner) conflicts(before func(uid string) bool) (found []Conflict, unsure bool) {
	if p.recovering() || p.obj.Network != nil && p.obj.Network.Delegates() {
		return nil, false // not all owners are known yet; addresses of another plugin
	}
	owners := map[netip.Addr]*claimants{}
	at := func(a netip.Addr) *claimants {
		if owners[a] == nil {
			owners[a] = &claimants{}
		}
		return owners[a]
	}
	for _, e := range p.endpoints {
		if e.of(p.obj.UID) {
			for _, a := range both(e.V4, e.V6) {
				if c := at(a); !slices.ContainsFunc(c.endpoints, e.sameInterface) {
					c.endpoints = append(c.endpoints, e)
				}
			}
		}
	}
	for name, h := range p.held {
		e, err := parseEntry(h)
		if err != nil || !ofNode(name) {
			continue // quarantine is nobody's Pod
		}
		for _, a := range e.addrs() {
			if e.quarantinedOf(a).Contains(a) {
				continue // another Pod may be who answered
			}
			at(a).nodes = append(at(a).nodes, name)
		}
	}
	for a, c := range owners {
		all, open := c.owners(before)
		unsure = unsure || open
		if len(all) > 1 {
			found = append(found, Conflict{a, all})
		}
	}
	slices.SortFunc(found, func(a, b Conflict) int { return a.Addr.Compare(b.Addr) })
	return found, unsure
}

// sameInterface reports whether two DanmEps are of one interface: for a moment there are
// two while the controller moves one to another namespace.
func (e Endpoint) sameInterface(other Endpoint) bool {
	return e.ID != "" && e.ID == other.ID && e.Node == other.Node && e.PodUID == other.PodUID
}

// claimants are the DanmEps, and the nodes by their entries, that have one address.
type claimants struct {
	endpoints []Endpoint
	nodes     []string
}

// owners returns those that have the address at the same time, in order.
func (c *claimants) owners(before func(uid string) bool) (all []Owner, unsure bool) {
	for _, e := range c.endpoints {
		all = append(all, Owner{e.Namespace, e.Pod, e.PodUID, e.Name, e.Node})
	}
	for _, node := range c.nodes {
		// A node's own DanmEp and its entry overlap with each use and release.
		if slices.ContainsFunc(c.endpoints, func(e Endpoint) bool { return e.Node == node }) {
			continue
		}
		if len(c.nodes) == 1 && len(c.endpoints) > 0 && !slices.ContainsFunc(c.endpoints, func(e Endpoint) bool { return before(e.UID) }) {
			unsure = true
			continue
		}
		all = append(all, Owner{Node: node})
	}
	slices.SortFunc(all, Owner.compare)
	return all, unsure
}
