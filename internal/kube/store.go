// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// Store reads and writes networks for address allocator and ipam/gc. Each call is one request to the API server,
// without a cache and without a retry.
type Store struct {
	client client.Client
}

// NewStore returns a store over a client without a cache.
func NewStore(c client.Client) *Store { return &Store{client: c} }

// Get implements allocator.Store.
func (s *Store) Get(ctx context.Context, ref network.Ref) (*status.Object, error) {
	obj, err := NewNetwork(ref.Kind)
	if err != nil {
		return nil, err
	}
	if err := s.client.Get(ctx, ObjectKey(ref), obj); err != nil {
		return nil, storeError("get", ref, err)
	}
	return ObjectOf(ref, obj), nil
}

// Update implements allocator.Store. It sends the UID, so that the API server returns a conflict for
// another object of the same name.
func (s *Store) Update(ctx context.Context, o *status.Object) (*status.Object, error) {
	obj, err := NewNetwork(o.Ref.Kind)
	if err != nil {
		return nil, err
	}
	obj.SetNamespace(o.Ref.Namespace)
	obj.SetName(o.Ref.Name)
	obj.SetUID(types.UID(o.UID))
	obj.SetResourceVersion(o.ResourceVersion)
	current := NetworkStatusOf(obj)
	if kept, ok := o.Extra.(preservedFields); ok {
		kept.status.DeepCopyInto(current)
		obj.SetFinalizers(kept.finalizers)
		obj.SetLabels(kept.labels)
		obj.SetAnnotations(kept.annotations)
		obj.SetOwnerReferences(kept.owners)
	}
	current.IPAM = o.IPAM
	if err := s.client.Status().Update(ctx, obj); err != nil {
		return nil, storeError("update status of", o.Ref, err)
	}
	return ObjectOf(o.Ref, obj), nil
}

// Protect implements allocator.Store by a merge patch of metadata with UID and resourceVersion as
// preconditions. It keeps the finalizers of others.
func (s *Store) Protect(ctx context.Context, o *status.Object, on bool) (*status.Object, error) {
	obj, err := NewNetwork(o.Ref.Kind)
	if err != nil {
		return nil, err
	}
	kept, _ := o.Extra.(preservedFields)
	finalizers := slices.DeleteFunc(slices.Clone(kept.finalizers), func(f string) bool { return f == v1.InUseFinalizer })
	if on {
		finalizers = append(finalizers, v1.InUseFinalizer)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.UID, "resourceVersion": o.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return nil, fmt.Errorf("encode patch of %s: %w", o.Ref, err)
	}
	obj.SetNamespace(o.Ref.Namespace)
	obj.SetName(o.Ref.Name)
	if err := s.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return nil, storeError("set finalizer of", o.Ref, err)
	}
	return ObjectOf(o.Ref, obj), nil
}

// endpointPageSize is how many DanmEps are in memory in full at a time; all pages
// are of one snapshot.
const endpointPageSize = 500

// Endpoints implements allocator.Store. It sends no resourceVersion, which makes the list consistent
// (Kubernetes API concepts, "Semantics for get and list"). The API server selects by network name,
// because a DanmEp that DANM wrote has no network UID.
func (s *Store) Endpoints(ctx context.Context, ref network.Ref) ([]status.Endpoint, error) {
	var found []status.Endpoint
	opts := client.ListOptions{Namespace: ref.Namespace, Limit: endpointPageSize}
	client.MatchingFields{"spec.NetworkName": ref.Name}.ApplyToList(&opts)
	for {
		page := &v1.DanmEpList{}
		if err := s.client.List(ctx, page, &opts); err != nil {
			return nil, storeError("list DanmEps of", ref, err)
		}
		for i := range page.Items {
			if !IsOnNetwork(&page.Items[i], ref) {
				continue
			}
			ep, err := EndpointOf(&page.Items[i])
			if err != nil {
				return nil, fmt.Errorf("list DanmEps of %s: %w", ref, err)
			}
			found = append(found, ep)
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			return found, nil
		}
	}
}

// IsOnNetwork reports whether a DanmEp is on this network. DANM leaves apiType empty for DanmNets.
func IsOnNetwork(ep *v1.DanmEp, ref network.Ref) bool {
	kind := ep.Spec.APIType
	if kind == "" {
		kind = v1.KindDanmNet
	}
	return kind == ref.Kind && ep.Spec.NetworkName == ref.Name &&
		(ref.Namespace == "" || ep.Namespace == ref.Namespace)
}

// preservedFields is what Store keeps in status.Object.Extra. An update of the status must repeat
// the rest of the status, because it replaces all of it. It must also repeat the metadata that it
// does not change, because a field that is missing in an update loses its server-side apply owner.
type preservedFields struct {
	status              v1.NetworkStatus
	finalizers          []string
	labels, annotations map[string]string
	owners              []metav1.OwnerReference
}

// ObjectOf converts a network object to that of package status.
func ObjectOf(ref network.Ref, obj client.Object) *status.Object {
	m := ParseNetwork(obj)
	current := *NetworkStatusOf(obj)
	kept := preservedFields{
		status: current, finalizers: obj.GetFinalizers(),
		labels: obj.GetLabels(), annotations: obj.GetAnnotations(), owners: obj.GetOwnerReferences(),
	}
	kept.status.IPAM = nil
	return &status.Object{
		Ref: ref, UID: string(obj.GetUID()),
		Generation: obj.GetGeneration(), ResourceVersion: obj.GetResourceVersion(),
		Deleting: m.Version.Deleting, Protected: hasInUseFinalizer(obj),
		Network: m.Network, Invalid: m.Err,
		IPAM:  current.IPAM,
		Extra: kept,
	}
}

// hasInUseFinalizer reports whether an object has our finalizer.
func hasInUseFinalizer(obj client.Object) bool {
	return slices.Contains(obj.GetFinalizers(), v1.InUseFinalizer)
}

// storeError wraps an API server's error in the error that package allocator expects.
func storeError(verb string, ref network.Ref, err error) error {
	switch {
	case apierrors.IsConflict(err):
		err = fmt.Errorf("%w: %w", status.ErrConflict, err)
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("%w: %w", status.ErrNotFound, err)
	}
	return fmt.Errorf("%s %s: %w", verb, ref, err)
}
