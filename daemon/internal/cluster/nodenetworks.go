// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// NodeNetworks are what all nodes' daemons say of their NICs.
type NodeNetworks struct {
	conn *Connection
	// synced says whether the cache was filled.
	synced func() bool
	// changes counts what was watched; nics are of one count.
	changes atomic.Uint64
	nics    atomic.Pointer[nicSnapshot]
}

// nicSnapshot are the addresses of all nodes' NICs, and how many nodes there are.
type nicSnapshot struct {
	changes   uint64
	nodes     int
	addresses []netip.Addr
}

// WatchNodeNetworks starts to watch; changed is called after each change of NICs and
// their addresses, and must not block. What others say of their links is nobody's
// business here.
func WatchNodeNetworks(ctx context.Context, conn *Connection, changed func()) (*NodeNetworks, error) {
	i, err := conn.Cache.GetInformer(ctx, &v1.NodeNetwork{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch NodeNetworks: %w", err)
	}
	n := &NodeNetworks{conn: conn, synced: i.HasSynced}
	notify := func() {
		n.changes.Add(1)
		changed()
	}
	_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() },
		UpdateFunc: func(old, now any) {
			if !sameNICs(old, now) {
				notify()
			}
		},
		DeleteFunc: func(any) { notify() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch NodeNetworks: %w", err)
	}
	return n, nil
}

func sameNICs(old, now any) bool {
	a, ok := old.(*v1.NodeNetwork)
	b, too := now.(*v1.NodeNetwork)
	return ok && too && a.UID == b.UID && netwatcher.SameVTEPs(a.Status.NICs, b.Status.NICs)
}

// Ready reports whether all NodeNetworks of the cluster were read.
func (n *NodeNetworks) Ready() bool { return n.synced() }

// List returns all nodes' objects, with the names and addresses of NICs only.
// The error wraps attach.ErrTryAgain before Ready.
func (n *NodeNetworks) List(ctx context.Context) ([]v1.NodeNetwork, error) {
	if !n.Ready() {
		return nil, fmt.Errorf("list NodeNetworks: %w: they were not read yet", attach.ErrTryAgain)
	}
	list := &v1.NodeNetworkList{}
	if err := n.conn.Cache.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list NodeNetworks: %w", err)
	}
	return list.Items, nil
}

// NICs returns the addresses of all nodes' NICs: no Pod may get one.
func (n *NodeNetworks) NICs(ctx context.Context) []netip.Addr { return n.snapshot(ctx).addresses }

// NodeCount returns how many nodes there are, at least 1.
func (n *NodeNetworks) NodeCount(ctx context.Context) int { return max(n.snapshot(ctx).nodes, 1) }

// snapshot is what the nodes say now; nothing before Ready.
func (n *NodeNetworks) snapshot(ctx context.Context) *nicSnapshot {
	changes := n.changes.Load()
	if known := n.nics.Load(); known != nil && known.changes == changes {
		return known
	}
	nodes, err := n.List(ctx)
	if err != nil {
		return &nicSnapshot{}
	}
	now := &nicSnapshot{changes: changes, nodes: len(nodes), addresses: kube.NodeNICAddresses(nodes)}
	n.nics.Store(now)
	return now
}

// WriteStatus writes this node's NodeNetwork, and makes it when it is missing. It
// goes with its Node: garbage collection takes it away.
func (n *NodeNetworks) WriteStatus(ctx context.Context, status v1.NodeNetworkStatus) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	obj := &v1.NodeNetwork{}
	err := n.conn.Direct.Get(ctx, client.ObjectKey{Name: n.conn.Node}, obj)
	if apierrors.IsNotFound(err) {
		obj, err = n.create(ctx)
	}
	if err != nil {
		return fmt.Errorf("read NodeNetwork %s: %w", n.conn.Node, err)
	}
	conditions := obj.Status.Conditions
	for _, c := range status.Conditions {
		meta.SetStatusCondition(&conditions, c) // keeps the time of the last change
	}
	obj.Status = status
	obj.Status.Conditions = conditions
	if err := n.conn.Direct.Status().Update(ctx, obj); err != nil {
		return fmt.Errorf("write status of NodeNetwork %s: %w", n.conn.Node, err)
	}
	return nil
}

// create makes the object without a status, which a create ignores.
func (n *NodeNetworks) create(ctx context.Context) (*v1.NodeNetwork, error) {
	uid, err := n.conn.NodeUID(ctx)
	if err != nil {
		return nil, err
	}
	node := nodeTypeMeta()
	obj := &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{
		Name: n.conn.Node,
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: node.APIVersion, Kind: node.Kind, Name: n.conn.Node, UID: types.UID(uid)},
		},
	}}
	if err := n.conn.Direct.Create(ctx, obj); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	return obj, nil
}

// ownUID is that of this node's object, empty while it is not known: the Event is
// found by name then.
func (n *NodeNetworks) ownUID(ctx context.Context) types.UID {
	own := &v1.NodeNetwork{}
	if !n.Ready() || n.conn.Cache.Get(ctx, client.ObjectKey{Name: n.conn.Node}, own) != nil {
		return ""
	}
	return own.UID
}
