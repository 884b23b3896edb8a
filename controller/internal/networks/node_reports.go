// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// nodeReports are the reports of all nodes. A map that was handed out is never changed.
type nodeReports struct {
	mu     sync.Mutex
	byNode map[string]*nodeReport
}

// all returns the reports by node, not to be changed.
func (n *nodeReports) all() map[string]*nodeReport {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byNode
}

// update takes a node's report. It returns the networks whose state on the node is
// another; joined says that the node is new, which changes all networks.
func (n *nodeReports) update(nn *v1.NodeNetwork) (networks []network.Ref, joined bool) {
	now := newNodeReport(nn)
	n.mu.Lock()
	defer n.mu.Unlock()
	old, known := n.byNode[nn.Name]
	if !known {
		old = &nodeReport{}
	}
	for _, text := range changedNetworks(old, now) {
		if ref, ok := parseRef(text); ok {
			networks = append(networks, ref)
		}
	}
	if known && len(networks) == 0 {
		return nil, false
	}
	n.byNode = maps.Clone(n.byNode)
	n.byNode[nn.Name] = now
	return networks, !known
}

// remove takes a node out that is gone.
func (n *nodeReports) remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byNode = maps.Clone(n.byNode)
	delete(n.byNode, name)
}

// parseRef reads what network.Ref.String writes; false for a kind that has no
// conditions of ours.
func parseRef(text string) (network.Ref, bool) {
	kind, name, _ := strings.Cut(text, "/")
	ref := network.Ref{Kind: kind, Name: name}
	if namespace, name, ok := strings.Cut(name, "/"); ok {
		ref.Namespace, ref.Name = namespace, name
	}
	_, err := kube.NewNetwork(kind)
	return ref, err == nil && ref.Name != ""
}

// nodeReport is what one node says of networks, by network.Ref.String.
type nodeReport struct {
	up map[string]bool
	// problems says why a network is not up.
	problems map[string]string
}

// newNodeReport reads a NodeNetwork; slimmed or not.
func newNodeReport(nn *v1.NodeNetwork) *nodeReport {
	r := &nodeReport{up: map[string]bool{}, problems: map[string]string{}}
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
				r.problems[n] = text
			}
		}
	}
	for _, refused := range nn.Status.Refused {
		r.problems[refused.Network] = refused.Error
	}
	return r
}

// changedNetworks are the networks that two reports of a node say different things of.
func changedNetworks(a, b *nodeReport) []string {
	differ := map[string]bool{}
	for n := range a.up {
		differ[n] = !b.up[n]
	}
	for n := range b.up {
		differ[n] = !a.up[n]
	}
	for n, text := range a.problems {
		differ[n] = differ[n] || b.problems[n] != text
	}
	for n, text := range b.problems {
		differ[n] = differ[n] || a.problems[n] != text
	}
	maps.DeleteFunc(differ, func(_ string, d bool) bool { return !d })
	return slices.Sorted(maps.Keys(differ))
}
