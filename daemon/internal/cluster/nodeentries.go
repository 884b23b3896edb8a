// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"maps"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// NodeEntries are the networks in whose status one node has an entry, as far as
// objects were read: what its daemon has to settle when it starts.
type NodeEntries struct {
	node string
	mu   sync.Mutex
	keys map[claims.Key]struct{}
}

// NewNodeEntries returns the holdings of a node.
func NewNodeEntries(node string) *NodeEntries {
	return &NodeEntries{node: node, keys: map[claims.Key]struct{}{}}
}

// Observe takes note of an object that was read; see NetworksOptions. What is held
// of a network that has become invalid is to be settled too.
func (h *NodeEntries) Observe(obj client.Object, _ *network.Network, _ error) {
	kind, ok := kube.NetworkKindOf(obj)
	if !ok || kube.NetworkStatusOf(obj).IPAM == nil {
		return
	}
	if _, ok := kube.NetworkStatusOf(obj).IPAM.Held[h.node]; ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.keys[claims.Key{Ref: kube.NetworkRefOf(kind, obj), UID: string(obj.GetUID())}] = struct{}{}
	}
}

// Add takes note of the networks of uses, and of those where the node has had an
// entry by its journal.
func (h *NodeEntries) Add(uses []claims.Use, seqs map[claims.Key]int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range uses {
		h.keys[uses[i].Key] = struct{}{}
	}
	for key := range seqs {
		h.keys[key] = struct{}{}
	}
}

// Keys returns the holdings, each once.
func (h *NodeEntries) Keys() []claims.Key {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.keys))
}

// RecoveringNetwork reports whether a network that was read is recovering from an older
// state, and which it is.
func RecoveringNetwork(obj client.Object) (claims.Key, bool) {
	kind, ok := kube.NetworkKindOf(obj)
	if !ok || kube.NetworkStatusOf(obj).IPAM == nil || kube.NetworkStatusOf(obj).IPAM.Recovering == nil {
		return claims.Key{}, false
	}
	return networkKey(kind, obj), true
}
