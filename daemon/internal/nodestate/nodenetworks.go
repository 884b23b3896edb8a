// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// NodeNetworks reads the NodeNetworks of all nodes from the cache, and writes this node's.
type NodeNetworks struct {
	conn *kubeclient.Connection
	// synced reports whether the cache is filled.
	synced func() bool
	// changes counts the events of the watch. A snapshot is valid for one count.
	changes atomic.Uint64
	nics    atomic.Pointer[nicSnapshot]
}

// nicSnapshot has the number of nodes and the addresses of all their NICs.
type nicSnapshot struct {
	changes   uint64
	nodes     int
	addresses []netip.Addr
}

// WatchNodeNetworks starts the watch. It calls changed after each change of the NICs or of
// their addresses, but not after a change of the status of links; changed must not block.
func WatchNodeNetworks(ctx context.Context, conn *kubeclient.Connection, changed func()) (*NodeNetworks, error) {
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

// sameNICs reports whether an update left the addresses of NICs as they were.
func sameNICs(old, now any) bool {
	a, ok := old.(*v1.NodeNetwork)
	b, too := now.(*v1.NodeNetwork)
	return ok && too && a.UID == b.UID && netwatcher.SameVTEPs(a.Status.NICs, b.Status.NICs)
}

// Ready reports whether the cache has all NodeNetworks of the cluster.
func (n *NodeNetworks) Ready() bool { return n.synced() }

// List returns the NodeNetworks of all nodes. Of their status, it has only the names and
// addresses of NICs. Before Ready, the error wraps attach.ErrTryAgain.
func (n *NodeNetworks) List(ctx context.Context) ([]v1.NodeNetwork, error) {
	if !n.Ready() {
		return nil, fmt.Errorf("list NodeNetworks: %w: the cache is not filled yet", attach.ErrTryAgain)
	}
	list := &v1.NodeNetworkList{}
	if err := n.conn.Cache.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list NodeNetworks: %w", err)
	}
	return list.Items, nil
}

// NICs returns the addresses of all nodes' NICs, which no Pod may get. It returns none
// before Ready.
func (n *NodeNetworks) NICs(ctx context.Context) []netip.Addr { return n.snapshot(ctx).addresses }

// NodeCount returns the number of nodes, at least 1.
func (n *NodeNetworks) NodeCount(ctx context.Context) int { return max(n.snapshot(ctx).nodes, 1) }

// snapshot returns the current snapshot, which is empty before Ready.
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

// WriteStatus writes the status of this node's NodeNetwork, and creates the object if it is
// missing. Its owner is the Node, so that garbage collection deletes it with the Node.
func (n *NodeNetworks) WriteStatus(ctx context.Context, status v1.NodeNetworkStatus) error {
	return n.update(ctx, func(s *v1.NodeNetworkStatus) {
		conditions := s.Conditions
		meta.RemoveStatusCondition(&conditions, v1alpha1.ConditionCleanedUp) // of an earlier daemon
		for _, c := range status.Conditions {
			meta.SetStatusCondition(&conditions, c) // keeps lastTransitionTime
		}
		*s = status
		s.Conditions = conditions
	})
}

// ReportCleanUp writes which links are left, and the condition of a clean-up. Links that are nil stay as they are, and
// so do NICs: without them, other nodes would drop the VXLAN tunnels to Pods that keep their interfaces.
func (n *NodeNetworks) ReportCleanUp(ctx context.Context, links []v1.HostLink, c metav1.Condition) error {
	return n.update(ctx, func(s *v1.NodeNetworkStatus) {
		if links != nil {
			s.Links = links
		}
		meta.SetStatusCondition(&s.Conditions, c)
	})
}

// ReportCondition writes a condition, or removes it if c is nil.
func (n *NodeNetworks) ReportCondition(ctx context.Context, kind string, c *metav1.Condition) error {
	return n.update(ctx, func(s *v1.NodeNetworkStatus) {
		if c == nil {
			meta.RemoveStatusCondition(&s.Conditions, kind)
			return
		}
		meta.SetStatusCondition(&s.Conditions, *c)
	})
}

// update changes the status of this node's NodeNetwork. It writes nothing that is so already.
func (n *NodeNetworks) update(ctx context.Context, change func(*v1.NodeNetworkStatus)) error {
	ctx, cancel := context.WithTimeout(ctx, kubeclient.RequestTimeout)
	defer cancel()
	obj := &v1.NodeNetwork{}
	err := n.conn.Direct.Get(ctx, client.ObjectKey{Name: n.conn.Node}, obj)
	if apierrors.IsNotFound(err) {
		obj, err = n.create(ctx)
	}
	if err != nil {
		return fmt.Errorf("read NodeNetwork %s: %w", n.conn.Node, err)
	}
	before := obj.Status.DeepCopy()
	if change(&obj.Status); equality.Semantic.DeepEqual(before, &obj.Status) {
		return nil
	}
	if err := n.conn.Direct.Status().Update(ctx, obj); err != nil {
		return fmt.Errorf("write status of NodeNetwork %s: %w", n.conn.Node, err)
	}
	return nil
}

// create creates this node's NodeNetwork. A create cannot set the status.
func (n *NodeNetworks) create(ctx context.Context) (*v1.NodeNetwork, error) {
	uid, err := n.conn.NodeUID(ctx)
	if err != nil {
		return nil, err
	}
	node := kubeclient.NodeMetadata()
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

// Reference returns a reference to this node's NodeNetwork for Events. Its UID is empty while
// the cache does not have the object; Events then refer to it by name.
func (n *NodeNetworks) Reference(ctx context.Context) *corev1.ObjectReference {
	ref := &corev1.ObjectReference{APIVersion: v1.SchemeGroupVersion().String(), Kind: "NodeNetwork", Name: n.conn.Node}
	own := &v1.NodeNetwork{}
	if n.Ready() && n.conn.Cache.Get(ctx, client.ObjectKey{Name: n.conn.Node}, own) == nil {
		ref.UID = own.UID
	}
	return ref
}
