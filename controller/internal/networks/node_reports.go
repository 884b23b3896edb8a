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

// reportChanges are the differences between two reports of a node.
type reportChanges struct {
	// networks are those whose link changed, delegates those that changed for all networks that need them.
	networks  []network.Ref
	delegates map[delegate]bool
	// joined is true when the node is new, which changes the condition of all networks.
	joined bool
}

// update stores a node's report, and returns what changed.
func (n *nodeReports) update(nn *v1.NodeNetwork) reportChanges {
	now := newNodeReport(nn)
	n.mu.Lock()
	defer n.mu.Unlock()
	old, known := n.byNode[nn.Name]
	if !known {
		old = &nodeReport{}
	}
	changes := reportChanges{delegates: map[delegate]bool{}, joined: !known}
	for _, text := range changedNetworks(old, now) {
		if ref, ok := parseRef(text); ok {
			changes.networks = append(changes.networks, ref)
		}
	}
	addChanged(changes.delegates, old.delegates, now.delegates)
	if known && len(changes.networks) == 0 && len(changes.delegates) == 0 {
		return changes
	}
	byNode := maps.Clone(n.byNode)
	if byNode == nil {
		byNode = map[string]*nodeReport{}
	}
	byNode[nn.Name] = now
	n.byNode = byNode
	return changes
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
	// problems are the errors of networks that are not up.
	problems map[string]string
	// delegates are the errors of plugins and configurations; "" for one that is installed.
	delegates map[delegate]string
}

// newNodeReport returns the report in a NodeNetwork, stripped or not.
func newNodeReport(nn *v1.NodeNetwork) *nodeReport {
	r := &nodeReport{up: map[string]bool{}, problems: map[string]string{}, delegates: map[delegate]string{}}
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
		r.delegates[delegate{d.NetworkType, d.NetworkID}] = d.Error
	}
	for _, refused := range nn.Status.Refused {
		r.problems[refused.Network] = refused.Error
	}
	return r
}

// changedNetworks returns the networks whose links two reports of a node differ in, sorted.
func changedNetworks(a, b *nodeReport) []string {
	changed := map[string]bool{}
	addChanged(changed, a.up, b.up)
	addChanged(changed, a.problems, b.problems)
	return slices.Sorted(maps.Keys(changed))
}

// addChanged adds the keys that one of two maps lacks, or that have another value.
func addChanged[K, V comparable](changed map[K]bool, a, b map[K]V) {
	for _, pair := range [][2]map[K]V{{a, b}, {b, a}} {
		for key, value := range pair[0] {
			if other, ok := pair[1][key]; !ok || other != value {
				changed[key] = true
			}
		}
	}
}
