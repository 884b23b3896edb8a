// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Store reads NodeNetworks and networks, and writes the condition Ready.
type Store interface {
	// Nodes returns the NodeNetworks in the cache.
	Nodes(ctx context.Context) ([]v1.NodeNetwork, error)
	// Version returns the version of a network in the cache; false when it does not exist.
	Version(ctx context.Context, ref network.Ref) (Version, bool, error)
	// Read returns a network that is not older than resourceVersion; false when it does not exist.
	Read(ctx context.Context, ref network.Ref, resourceVersion string) (Snapshot, bool, error)
	// Write makes c the condition Ready of the network with this UID. With nil it removes the
	// condition that this package wrote, and none of another owner. A network that does not exist
	// is no error.
	Write(ctx context.Context, ref network.Ref, uid types.UID, c *metav1.Condition) error
}

// Snapshot is what this package needs of a network.
type Snapshot struct {
	// UID and Generation of the object.
	UID        types.UID
	Generation int64
	// Needs is what a valid network needs on nodes.
	Needs needs
	// Ready is the network's condition Ready; nil when it has none.
	Ready *metav1.Condition
}

// Version tells which object of a name exists, and how new it is.
type Version struct {
	UID        types.UID
	Generation int64
	// ResourceVersion is the API server's.
	ResourceVersion string
}

// fieldManager owns the condition Ready, and no other field.
const fieldManager = "patchbay-controller-networks"

// store implements Store.
type store struct {
	cached client.Reader
	direct client.Client
}

var _ Store = (*store)(nil)

// Nodes implements Store.
func (s *store) Nodes(ctx context.Context) ([]v1.NodeNetwork, error) {
	list := &v1.NodeNetworkList{}
	if err := s.cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list NodeNetworks: %w", err)
	}
	return list.Items, nil
}

// Version implements Store.
func (s *store) Version(ctx context.Context, ref network.Ref) (Version, bool, error) {
	m := kube.PartialMetadata(ref.Kind)
	switch err := s.cached.Get(ctx, kube.ObjectKey(ref), m); {
	case apierrors.IsNotFound(err):
		return Version{}, false, nil
	case err != nil:
		return Version{}, false, fmt.Errorf("get metadata of %s: %w", ref, err)
	}
	return Version{m.UID, m.Generation, m.ResourceVersion}, true, nil
}

// Read implements Store. The API server answers from its watch cache unless that is older than
// resourceVersion.
func (s *store) Read(ctx context.Context, ref network.Ref, resourceVersion string) (Snapshot, bool, error) {
	obj, err := kube.NewNetwork(ref.Kind)
	if err != nil {
		return Snapshot{}, false, err
	}
	fromMemory := &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: resourceVersion}}
	switch err := s.direct.Get(ctx, kube.ObjectKey(ref), obj, fromMemory); {
	case apierrors.IsNotFound(err):
		return Snapshot{}, false, nil
	case err != nil:
		return Snapshot{}, false, fmt.Errorf("get %s: %w", ref, err)
	}
	return snapshotOf(obj), true, nil
}

// snapshotOf returns the snapshot of an object. One in deletion needs no condition, and on an
// invalid one only nodes set a condition.
func snapshotOf(obj client.Object) Snapshot {
	seen := Snapshot{UID: obj.GetUID(), Generation: obj.GetGeneration()}
	if n := kube.ParseNetwork(obj).Network; n != nil && !n.Deleting {
		_, seen.Needs.Link = n.Link()
		if n.Delegates() {
			seen.Needs.Delegate = delegate{n.Type, n.ID}
		}
	}
	if !obj.GetDeletionTimestamp().IsZero() {
		return seen
	}
	seen.Ready = meta.FindStatusCondition(kube.NetworkStatusOf(obj).Conditions, v1.ConditionReady)
	return seen
}

// Write implements Store.
func (s *store) Write(ctx context.Context, ref network.Ref, uid types.UID, c *metav1.Condition) error {
	var conditions []metav1.Condition
	if c != nil {
		conditions = append(conditions, *c)
	}
	return client.IgnoreNotFound(kube.ApplyConditions(ctx, s.direct, ref, uid, fieldManager, conditions...))
}
