// SPDX-License-Identifier: Apache-2.0

package networkcache

import (
	"maps"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
)

// NodeEntries collects the networks in whose status one node has an entry. The daemon settles
// these networks when it starts.
type NodeEntries struct {
	node string
	mu   sync.Mutex
	keys map[network.Key]struct{}
}

// NewNodeEntries returns empty NodeEntries of a node.
func NewNodeEntries(node string) *NodeEntries {
	return &NodeEntries{node: node, keys: map[network.Key]struct{}{}}
}

// Observe adds a network that was read if the node has an entry in its status. It is a ReadFunc.
// An invalid network counts as well, because its addresses must be freed too.
func (n *NodeEntries) Observe(obj client.Object, _ *network.Network, _ error) {
	kind, ok := kube.NetworkKindOf(obj)
	if !ok || kube.NetworkStatusOf(obj).IPAM == nil {
		return
	}
	if _, ok := kube.NetworkStatusOf(obj).IPAM.Held[n.node]; ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.keys[network.Key{Ref: kube.NetworkRefOf(kind, obj), UID: string(obj.GetUID())}] = struct{}{}
	}
}

// Add adds the networks of uses, and the networks of which the journal has a sequence number,
// which means that the node had an entry.
func (n *NodeEntries) Add(uses []allocator.Use, seqs map[network.Key]int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range uses {
		n.keys[uses[i].Key] = struct{}{}
	}
	for key := range seqs {
		n.keys[key] = struct{}{}
	}
}

// Keys returns the networks, each once.
func (n *NodeEntries) Keys() []network.Key {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.keys))
}

// RecoveringNetwork returns the key of a network that was read, and whether it recovers from an
// older state of the API server.
func RecoveringNetwork(obj client.Object) (network.Key, bool) {
	kind, ok := kube.NetworkKindOf(obj)
	if !ok || kube.NetworkStatusOf(obj).IPAM == nil || kube.NetworkStatusOf(obj).IPAM.Recovering == nil {
		return network.Key{}, false
	}
	return networkKey(kind, obj), true
}
