// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// nodeReports are the reports of all nodes. It is safe for concurrent use.
type nodeReports struct {
	// readMu is held while readOnce reads; read is true afterwards.
	readMu sync.Mutex
	read   bool

	mu sync.Mutex
	// byNode is replaced, not modified, by a change.
	byNode map[string]*nodeReport
}

// readOnce reads the reports of all nodes, unless it has done so before.
func (n *nodeReports) readOnce(ctx context.Context, list func(context.Context) ([]v1.NodeNetwork, error)) error {
	n.readMu.Lock()
	defer n.readMu.Unlock()
	if n.read {
		return nil
	}
	all, err := list(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		n.update(&all[i])
	}
	n.read = true
	return nil
}

// all returns the reports by node. The caller must not modify the map.
func (n *nodeReports) all() map[string]*nodeReport {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byNode
}

// update stores a node's report. It returns the networks whose state on the node changed; joined
// reports that the node is new, which changes the condition of all networks.
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
	byNode := maps.Clone(n.byNode)
	if byNode == nil {
		byNode = map[string]*nodeReport{}
	}
	byNode[nn.Name] = now
	n.byNode = byNode
	return networks, !known
}

// remove deletes the report of a node.
func (n *nodeReports) remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byNode = maps.Clone(n.byNode)
	delete(n.byNode, name)
}

// parseRef parses the text of network.Ref.String; false for a kind that has no condition of ours.
func parseRef(text string) (network.Ref, bool) {
	kind, name, _ := strings.Cut(text, "/")
	ref := network.Ref{Kind: kind, Name: name}
	if namespace, name, ok := strings.Cut(name, "/"); ok {
		ref.Namespace, ref.Name = namespace, name
	}
	_, err := kube.NewNetwork(kind)
	return ref, err == nil && ref.Name != ""
}

// nodeReport is one node's report. Networks are named by network.Ref.String.
type nodeReport struct {
	up map[string]bool
	// installed are the networks whose plugin and configuration the node has.
	installed map[string]bool
	// problems are the errors of networks that are not up, or whose plugin is not installed.
	problems map[string]string
}

// newNodeReport returns the report in a NodeNetwork, stripped or not.
func newNodeReport(nn *v1.NodeNetwork) *nodeReport {
	r := &nodeReport{up: map[string]bool{}, installed: map[string]bool{}, problems: map[string]string{}}
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
	for _, d := range nn.Status.Delegates {
		for _, n := range d.Networks {
			if d.Error == "" {
				r.installed[n] = true
			} else {
				r.problems[n] = d.Error
			}
		}
	}
	for _, refused := range nn.Status.Refused {
		r.problems[refused.Network] = refused.Error
	}
	return r
}

// changedNetworks returns the networks that two reports of a node differ in, sorted.
func changedNetworks(a, b *nodeReport) []string {
	differ := map[string]bool{}
	for _, sets := range [][2]map[string]bool{{a.up, b.up}, {b.up, a.up}, {a.installed, b.installed}, {b.installed, a.installed}} {
		for n := range sets[0] {
			differ[n] = differ[n] || !sets[1][n]
		}
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
