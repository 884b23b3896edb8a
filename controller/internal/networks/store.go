// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Store is the API server, for network objects.
type Store interface {
	// Nodes returns what all nodes say, as a watch last saw it.
	Nodes(ctx context.Context) ([]v1.NodeNetwork, error)
	// Version returns what a watch last saw; false when there is no such network.
	Version(ctx context.Context, ref network.Ref) (Version, bool, error)
	// Read reads the object, which is not older than resourceVersion; false when there
	// is no such network.
	Read(ctx context.Context, ref network.Ref, resourceVersion string) (Snapshot, bool, error)
	// Write makes c the network's condition; not that of another one of its name.
	// With nil it has none of ours any more; others' stay.
	Write(ctx context.Context, ref network.Ref, uid types.UID, c *metav1.Condition) error
}

// Snapshot is a network object as it was read.
type Snapshot struct {
	// UID and Generation of the object.
	UID        types.UID
	Generation int64
	// Linked says that the network is valid and has a link on nodes: only of such a
	// one this package says whether it is ready.
	Linked bool
	// Ready is the condition that it has; nil when it has none.
	Ready *metav1.Condition
}

// Version is which network object of a name there is, and of when.
type Version struct {
	UID        types.UID
	Generation int64
	// ResourceVersion is the API server's.
	ResourceVersion string
}

// fieldManager owns the condition Ready for server-side apply, and no other field.
const fieldManager = "patchbay-controller-networks"

// store is the API server.
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

// Read implements Store; the API server answers out of memory, when that is not behind
// what the watch saw.
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

// snapshotOf reads an object. One that is invalid has its condition from nodes, and one
// that is being deleted needs none.
func snapshotOf(obj client.Object) Snapshot {
	seen := Snapshot{UID: obj.GetUID(), Generation: obj.GetGeneration()}
	if n := kube.ParseNetwork(obj).Network; n != nil && !n.Deleting {
		_, seen.Linked = n.Link()
	}
	if !obj.GetDeletionTimestamp().IsZero() {
		return seen
	}
	seen.Ready = meta.FindStatusCondition(kube.NetworkStatusOf(obj).Conditions, v1.ConditionReady)
	return seen
}

// Write implements Store. It names the UID and no resourceVersion: it never fails
// because somebody claims addresses.
func (s *store) Write(ctx context.Context, ref network.Ref, uid types.UID, c *metav1.Condition) error {
	conditions := []any{}
	if c != nil {
		condition, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c)
		if err != nil {
			return fmt.Errorf("encode condition of %s: %w", ref, err)
		}
		conditions = append(conditions, condition)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": conditions}}}
	u.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(ref.Kind))
	u.SetNamespace(ref.Namespace)
	u.SetName(ref.Name)
	u.SetUID(uid)
	err := s.direct.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fieldManager), client.ForceOwnership)
	return client.IgnoreNotFound(err)
}
