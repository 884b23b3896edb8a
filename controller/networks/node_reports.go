// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// nodes are the reports of all nodes. A map that was handed out is never changed.
type nodes struct {
	mu      sync.Mutex
	reports map[string]*report
}

// all returns the reports by node, not to be changed.
func (n *nodes) all() map[string]*report {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reports
}

// learn takes a node's report. It returns the networks whose state on the node is
// another; joined says that the node is new, which changes all networks.
func (n *nodes) learn(nn *v1.NodeNetwork) (networks []network.Ref, joined bool) {
	now := reportOf(nn)
	n.mu.Lock()
	defer n.mu.Unlock()
	old, known := n.reports[nn.Name]
	if !known {
		old = &report{}
	}
	for _, text := range changed(old, now) {
		if ref, ok := parseRef(text); ok {
			networks = append(networks, ref)
		}
	}
	if known && len(networks) == 0 {
		return nil, false
	}
	n.reports = maps.Clone(n.reports)
	n.reports[nn.Name] = now
	return networks, !known
}

// forget takes a node out that is gone.
func (n *nodes) forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reports = maps.Clone(n.reports)
	delete(n.reports, name)
}

// parseRef reads what network.Ref.String writes; false for a kind that has no
// conditions of ours.
func parseRef(text string) (network.Ref, bool) {
	kind, name, _ := strings.Cut(text, "/")
	ref := network.Ref{Kind: kind, Name: name}
	if namespace, name, ok := strings.Cut(name, "/"); ok {
		ref.Namespace, ref.Name = namespace, name
	}
	_, err := objects.New(kind)
	return ref, err == nil && ref.Name != ""
}

// report is what one node says of networks, by network.Ref.String.
type report struct {
	up map[string]bool
	// wrong says why a network is not up.
	wrong map[string]string
}

// reportOf reads a NodeNetwork; slimmed or not.
func reportOf(nn *v1.NodeNetwork) *report {
	r := &report{up: map[string]bool{}, wrong: map[string]string{}}
	for i := range nn.Status.Links {
		l := &nn.Status.Links[i]
		text := l.Error
		if text == "" {
			text = l.Name + " is down"
		}
		for _, n := range l.Networks {
			if l.State == v1.LinkUp {
				r.up[n] = true
			} else {
				r.wrong[n] = text
			}
		}
	}
	for _, refused := range nn.Status.Refused {
		r.wrong[refused.Network] = refused.Error
	}
	return r
}

// changed are the networks that two reports of a node say different things of.
func changed(a, b *report) []string {
	differ := map[string]bool{}
	for n := range a.up {
		differ[n] = !b.up[n]
	}
	for n := range b.up {
		differ[n] = !a.up[n]
	}
	for n, text := range a.wrong {
		differ[n] = differ[n] || b.wrong[n] != text
	}
	for n, text := range b.wrong {
		differ[n] = differ[n] || a.wrong[n] != text
	}
	maps.DeleteFunc(differ, func(_ string, d bool) bool { return !d })
	return slices.Sorted(maps.Keys(differ))
}
