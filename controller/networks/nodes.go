// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"maps"
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
