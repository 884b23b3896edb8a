// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// clusterReader reads Nodes, DanmEps and NodeNetworks. What it reads from the cache may be behind
// the API server, and says only where to look.
type clusterReader struct {
	// cached reads Nodes and networks as metadata, and DanmEps.
	cached client.Reader
	// direct reads from the API server.
	direct client.Reader
	now    func() time.Time

	nodeList     nodeListCache
	nicAddresses nicAddressCache
}

// fromWatchCache makes the API server answer a read from memory.
func fromWatchCache() *metav1.GetOptions { return &metav1.GetOptions{ResourceVersion: "0"} }

// getNetwork reads a network from the API server's watch cache. It returns the API server's error
// as it is, and a terminal error for a kind that is no network.
func (r *clusterReader) getNetwork(ctx context.Context, ref network.Ref) (networkSnapshot, error) {
	obj, err := kube.NewNetwork(ref.Kind)
	if err != nil {
		return networkSnapshot{}, reconcile.TerminalError(err)
	}
	if err := r.direct.Get(ctx, kube.ObjectKey(ref), obj, &client.GetOptions{Raw: fromWatchCache()}); err != nil {
		return networkSnapshot{}, err
	}
	return newNetworkSnapshot(ref, obj), nil
}

// cachedNodes returns the cached Nodes.
func (r *clusterReader) cachedNodes(ctx context.Context) (nodesByName, error) {
	return listNodes(ctx, r.cached)
}

// nodeListTTL is how long a list of Nodes is used again. A Node that is created within this time
// could as well be created after the recovery.
const nodeListTTL = 2 * time.Second

// nodeListCache keeps a list of the Nodes that the API server returned. After a restore of etcd
// all networks recover at once: one list then serves many of them.
type nodeListCache struct {
	mu     sync.Mutex
	readAt time.Time
	nodes  nodesByName
}

// listedNodes returns the Nodes as the API server had them at most nodeListTTL ago.
func (r *clusterReader) listedNodes(ctx context.Context) (nodesByName, error) {
	l := &r.nodeList
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes != nil && r.now().Sub(l.readAt) < nodeListTTL {
		return l.nodes, nil
	}
	readAt := r.now()
	nodes, err := listNodes(ctx, r.direct)
	if err != nil {
		return nil, err
	}
	l.readAt, l.nodes = readAt, nodes
	return nodes, nil
}

// confirmGone returns those incarnations that the API server does not have now. It asks again for
// each, because a restore of etcd may have brought the Node back.
func (r *clusterReader) confirmGone(ctx context.Context, candidates []incarnation) ([]incarnation, error) {
	var gone []incarnation
	for _, l := range candidates {
		node := emptyNodeMetadata()
		err := r.direct.Get(ctx, client.ObjectKey{Name: l.name}, node)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get Node %s: %w", l.name, err)
		}
		if err != nil || string(node.UID) != l.uid {
			gone = append(gone, l)
		}
	}
	return gone, nil
}

// cachedEndpoints returns the cached DanmEps, which must not be modified.
func (r *clusterReader) cachedEndpoints(ctx context.Context, opts ...client.ListOption) ([]v1.DanmEp, error) {
	list := &v1.DanmEpList{}
	if err := r.cached.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("list cached DanmEps: %w", err)
	}
	return list.Items, nil
}

// networkEndpoints returns the cached DanmEps of a network.
func (r *clusterReader) networkEndpoints(ctx context.Context, ref network.Ref) ([]status.Endpoint, error) {
	eps, err := r.cachedEndpoints(ctx, client.MatchingFields{byNetwork: ref.String()})
	if err != nil {
		return nil, err
	}
	all := make([]status.Endpoint, len(eps))
	for i := range eps {
		if all[i], err = kube.EndpointOf(&eps[i]); err != nil {
			return nil, fmt.Errorf("read DanmEps of %s: %w", ref, err)
		}
	}
	return all, nil
}

// isNamed reports whether a cached DanmEp names the network.
func (r *clusterReader) isNamed(ctx context.Context, n networkSnapshot) (bool, error) {
	eps, err := r.networkEndpoints(ctx, n.Ref)
	return slices.ContainsFunc(eps, func(e status.Endpoint) bool { return e.Of(n.UID) }), err
}

// missesFinalizer reports whether a network lacks the finalizer although a DanmEp names it.
func (r *clusterReader) missesFinalizer(ctx context.Context, n networkSnapshot) (bool, error) {
	if n.Deleting || n.Protected {
		return false, nil
	}
	return r.isNamed(ctx, n)
}

// countPools counts the addresses of a network as it was read, with the cached DanmEps.
func (r *clusterReader) countPools(ctx context.Context, n networkSnapshot) ([]v1.PoolStatus, error) {
	endpoints, err := r.networkEndpoints(ctx, n.Ref)
	if err != nil {
		return nil, err
	}
	return countPools(n.Object, objectPools(n), endpoints, r.reservedAddresses(ctx, n.Network)), nil
}

// nicAddressTTL is how long parsed NIC addresses are used again: to parse those of a thousand
// nodes for each network would take long.
const nicAddressTTL = 10 * time.Second

// nicAddressCache keeps the addresses of all nodes' NICs.
type nicAddressCache struct {
	mu        sync.Mutex
	readAt    time.Time
	addresses []netip.Addr
}

// reservedAddresses returns the nodes' own addresses in a network, which no Pod may get. It
// returns none while the cache is not filled.
func (r *clusterReader) reservedAddresses(ctx context.Context, net *network.Network) []netip.Addr {
	if net == nil {
		return nil
	}
	return kube.ReservedNodeAddresses(net, r.allNICAddresses(ctx))
}

func (r *clusterReader) allNICAddresses(ctx context.Context) []netip.Addr {
	n := &r.nicAddresses
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.now().Sub(n.readAt) < nicAddressTTL {
		return n.addresses
	}
	list := &v1.NodeNetworkList{}
	if err := r.cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	n.readAt, n.addresses = r.now(), kube.NodeNICAddresses(list.Items)
	return n.addresses
}
