// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// scope is the input of one reconciliation, and its plan.
type scope struct {
	networks []*network.Network
	plan     *Plan
	state    *State
	inUse    usageFunc
	// filter is for the plan's links and the existing ones.
	filter VXLANFilter
	// refusedVTEPs are other nodes' VTEPs that are ignored.
	refusedVTEPs VTEPs
	// statusExists is false when this node's object is known to be missing.
	statusExists bool
	// incomplete is true if there may be networks that are not known.
	incomplete bool
}

// newScope reads the networks, the other nodes and the links, and plans. Extra is a network that
// the client's cache may not have yet, or nil.
func newScope(ctx context.Context, c *Config, extra *network.Network) (*scope, error) {
	nets, err := c.KubeClient.Networks(ctx)
	incomplete := errors.Is(err, ErrNetworksIncomplete)
	if err != nil && !incomplete {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	nets = withNetwork(nets, extra)
	used, err := c.Pods.Links()
	if err != nil {
		return nil, fmt.Errorf("list links that Pods use: %w", err)
	}
	state, err := c.Kernel.State(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the host's links: %w", err)
	}
	s := &scope{networks: nets, state: state, inUse: inUseFunc(ctx, c, used), statusExists: true, incomplete: incomplete}
	var peers VTEPs
	if nodes, err := c.KubeClient.NodeNetworks(ctx); err == nil {
		peers, s.refusedVTEPs = PeerVTEPs(nodes, c.Node).splitAccepted(state, c.VTEPRanges)
		s.statusExists = slices.ContainsFunc(nodes, func(n v1.NodeNetwork) bool { return n.Name == c.Node })
	} else {
		c.Log.Info("Failed to list the other nodes: forwarding entries stay", "error", err.Error())
	}
	s.plan = Desired(nets, state, peers)
	s.filter = newVXLANFilter(s.plan, state, peers)
	if incomplete {
		s.keepUnknown()
	}
	return s, nil
}

// inUseFunc reports links that Pods of the journal use, or that have another link on top. It asks
// the kernel at most once, and only if a link should be deleted or get a smaller MTU: the kernel
// has to read every namespace. If the kernel fails, all links are in use.
func inUseFunc(ctx context.Context, c *Config, byPods map[network.Link]bool) usageFunc {
	linksInUse := sync.OnceValues(func() (map[string]bool, error) {
		names, err := c.Kernel.LinksInUse(ctx)
		if err != nil {
			c.Log.Error(err, "Failed to read which host links are in use: none is deleted")
		}
		return names, err
	})
	return func(f *ObservedLink) bool {
		if byPods[f.Identity] || f.Identity.IsNIC() {
			return byPods[f.Identity]
		}
		names, err := linksInUse()
		return err != nil || names[f.Name]
	}
}

// withNetwork adds a network that is not in nets, or that is newer than in nets.
func withNetwork(nets []*network.Network, extra *network.Network) []*network.Network {
	if extra == nil {
		return nets
	}
	all := []*network.Network{extra}
	for _, n := range nets {
		switch {
		case n.UID != extra.UID:
			all = append(all, n)
		case n.Generation > extra.Generation:
			all[0] = n
		}
	}
	return all
}

// keepUnknown lets unused links stay, which a network that is not known may need.
func (s *scope) keepUnknown() {
	used := s.inUse
	s.inUse = func(f *ObservedLink) bool { return mustDelete(f, s.plan) || used(f) }
}

// dropResolved drops the failures of links that are as planned now: a Pod's ADD created the link
// after the state was read. Call it when s.state is the state after the changes.
func (s *scope) dropResolved(failed linkFailures) {
	if len(failed) == 0 {
		return
	}
	left := map[network.Link]bool{}
	for _, c := range Diff(s.plan, s.state, s.inUse) {
		left[c.identity()] = true
	}
	maps.DeleteFunc(failed, func(id network.Link, _ error) bool {
		if nic, ok := s.state.nic(id.Device); id.IsNIC() && (!ok || !nic.Up) {
			return false
		}
		return !left[id]
	})
}

// linkByNetwork are the links of the networks that were not refused.
func (s *scope) linkByNetwork() map[network.Ref]network.Link {
	links := map[network.Ref]network.Link{}
	for _, n := range s.networks {
		if id, ok := n.Link(); ok && s.plan.Refused[n.Ref] == nil {
			links[n.Ref] = id
		}
	}
	return links
}

// guardedLinks are the existing links of Patchbay that the source guard applies to; see
// applySourceGuard.
func (s *scope) guardedLinks(current bool) []GuardedLink {
	var links []GuardedLink
	for i := range s.state.Links {
		f := &s.state.Links[i]
		if !f.Managed || f.Unfinished {
			continue
		}
		w := s.plan.link(f.Identity)
		wanted := w != nil && w.SourceGuarded
		// A link that no network needs still has Pods on it: their network may have been refused.
		if wanted || w == nil || !current || s.incomplete {
			links = append(links, GuardedLink{Name: f.Name, MAC: f.MAC, OnlyIfGuarded: !wanted})
		}
	}
	return links
}

// rejection returns the reason why the plan has no link for the network, or nil.
func (s *scope) rejection(id network.Link, ref network.Ref) error {
	if err := s.plan.Refused[ref]; err != nil {
		return err
	}
	if w := s.plan.link(id); w != nil {
		return w.Err
	}
	return nil
}
