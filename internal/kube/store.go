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
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// Store reads and writes networks for ipam/claims, one request per call, never
// from a cache and never repeated here.
type Store struct {
	client client.Client
}

// NewStore returns a store over a client that reads from the API server.
func NewStore(c client.Client) *Store { return &Store{client: c} }

// Get implements claims.Store.
func (s *Store) Get(ctx context.Context, ref network.Ref) (*claims.Object, error) {
	obj, err := NewNetwork(ref.Kind)
	if err != nil {
		return nil, err
	}
	if err := s.client.Get(ctx, ObjectKey(ref), obj); err != nil {
		return nil, storeError("get", ref, err)
	}
	return ObjectOf(ref, obj), nil
}

// Update implements claims.Store. The UID goes along: the API server refuses it
// as a conflict when the object is another one.
func (s *Store) Update(ctx context.Context, o *claims.Object) (*claims.Object, error) {
	obj, err := NewNetwork(o.Ref.Kind)
	if err != nil {
		return nil, err
	}
	obj.SetNamespace(o.Ref.Namespace)
	obj.SetName(o.Ref.Name)
	obj.SetUID(types.UID(o.UID))
	obj.SetResourceVersion(o.ResourceVersion)
	status := NetworkStatusOf(obj)
	if kept, ok := o.Extra.(preservedFields); ok {
		kept.status.DeepCopyInto(status)
		obj.SetFinalizers(kept.finalizers)
		obj.SetLabels(kept.labels)
		obj.SetAnnotations(kept.annotations)
		obj.SetOwnerReferences(kept.owners)
	}
	status.IPAM, status.Allocated, status.Capacity = o.IPAM, o.Allocated, o.Capacity
	if err := s.client.Status().Update(ctx, obj); err != nil {
		return nil, storeError("update status of", o.Ref, err)
	}
	return ObjectOf(o.Ref, obj), nil
}

// Protect implements claims.Store: a merge patch that holds only metadata, with
// UID and resourceVersion as preconditions. Finalizers of others stay.
func (s *Store) Protect(ctx context.Context, o *claims.Object, on bool) (*claims.Object, error) {
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

// Endpoints implements claims.Store. No resourceVersion is sent, which makes the
// list consistent (Kubernetes API concepts, "Semantics for get and list"). It
// selects by network name on the API server, because a DanmEp that DANM wrote
// has no UID to select by.
func (s *Store) Endpoints(ctx context.Context, ref network.Ref) ([]claims.Endpoint, error) {
	var found []claims.Endpoint
	opts := client.ListOptions{Namespace: ref.Namespace, Limit: endpointPageSize}
	client.MatchingFields{"spec.NetworkName": ref.Name}.ApplyToList(&opts)
	for {
		page := &v1.DanmEpList{}
		if err := s.client.List(ctx, page, &opts); err != nil {
			return nil, storeError("list DanmEps of", ref, err)
		}
		for i := range page.Items {
			if !isOnNetwork(&page.Items[i], ref) {
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

// isOnNetwork reports whether the DanmEp is of this network. DANM leaves apiType
// empty for its first kind.
func isOnNetwork(ep *v1.DanmEp, ref network.Ref) bool {
	kind := ep.Spec.APIType
	if kind == "" {
		kind = v1.KindDanmNet
	}
	return kind == ref.Kind && ep.Spec.NetworkName == ref.Name &&
		(ref.Namespace == "" || ep.Namespace == ref.Namespace)
}

// preservedFields is what Store keeps in claims.Object.Extra: what a PUT of status must
// repeat, since it replaces all of it, and what it does not change and must repeat all the
// same: who applied a label or an annotation that is missing in it would own it no longer.
type preservedFields struct {
	status              v1.NetworkStatus
	finalizers          []string
	labels, annotations map[string]string
	owners              []metav1.OwnerReference
}

// ObjectOf translates an object that was just read or written for ipam/claims.
func ObjectOf(ref network.Ref, obj client.Object) *claims.Object {
	m := ParseNetwork(obj)
	status := *NetworkStatusOf(obj)
	kept := preservedFields{
		status: status, finalizers: obj.GetFinalizers(),
		labels: obj.GetLabels(), annotations: obj.GetAnnotations(), owners: obj.GetOwnerReferences(),
	}
	kept.status.IPAM = nil
	return &claims.Object{
		Ref: ref, UID: string(obj.GetUID()),
		Generation: obj.GetGeneration(), ResourceVersion: obj.GetResourceVersion(),
		Deleting: m.Version.Deleting, Protected: hasInUseFinalizer(obj),
		Network: m.Network, Invalid: m.Err,
		IPAM: status.IPAM, Allocated: status.Allocated, Capacity: status.Capacity,
		Extra: kept,
	}
}

// hasInUseFinalizer reports whether an object has our finalizer.
func hasInUseFinalizer(obj client.Object) bool {
	return slices.Contains(obj.GetFinalizers(), v1.InUseFinalizer)
}

// storeError gives an API server's error the meaning that claims know.
func storeError(verb string, ref network.Ref, err error) error {
	switch {
	case apierrors.IsConflict(err):
		err = fmt.Errorf("%w: %w", claims.ErrConflict, err)
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("%w: %w", claims.ErrNotFound, err)
	}
	return fmt.Errorf("%s %s: %w", verb, ref, err)
}

var _ claims.Store = (*Store)(nil)
