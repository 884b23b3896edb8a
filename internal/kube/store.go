// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	d, err := GetNetwork(ctx, s.client, ref)
	if err != nil {
		return nil, storeError("get", ref, err)
	}
	return objectOf(ref, d), nil
}

// Update implements allocator.Store. It sends the UID, so that the API server returns a conflict for
// another object of the same name.
func (s *Store) Update(ctx context.Context, o *status.Object) (*status.Object, error) {
	d, ok := o.Extra.(*NetworkDocument)
	if !ok {
		return nil, fmt.Errorf("update status of %s: %w", o.Ref, errNotRead)
	}
	next := *NetworkStatusOf(d.Object)
	next.IPAM = o.IPAM
	written, err := d.UpdateStatus(ctx, s.client, &next)
	if err != nil {
		return nil, storeError("update status of", o.Ref, err)
	}
	return objectOf(o.Ref, written), nil
}

// errNotRead means that an object is not one of this store.
var errNotRead = errors.New("the object must be the result of a read or write of this store")

// Protect implements allocator.Store by a merge patch of metadata with UID and resourceVersion as
// preconditions. It keeps the finalizers of others.
func (s *Store) Protect(ctx context.Context, o *status.Object, on bool) (*status.Object, error) {
	d, ok := o.Extra.(*NetworkDocument)
	if !ok {
		return nil, fmt.Errorf("set finalizer of %s: %w", o.Ref, errNotRead)
	}
	finalizers := slices.DeleteFunc(slices.Clone(d.GetFinalizers()), func(f string) bool { return f == v1.InUseFinalizer })
	if on {
		finalizers = append(finalizers, v1.InUseFinalizer)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.UID, "resourceVersion": o.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return nil, fmt.Errorf("encode patch of %s: %w", o.Ref, err)
	}
	next, err := newNetworkDocument(o.Ref.Kind)
	if err != nil {
		return nil, err
	}
	next.SetNamespace(o.Ref.Namespace)
	next.SetName(o.Ref.Name)
	if err := s.client.Patch(ctx, next, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return nil, storeError("set finalizer of", o.Ref, err)
	}
	return objectOf(o.Ref, next), nil
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

// objectOf converts a network to an object that Store can write.
func objectOf(ref network.Ref, d *NetworkDocument) *status.Object {
	o := ObjectOf(ref, d.Object)
	o.IPAM = o.IPAM.DeepCopy() // callers may modify it
	o.Extra = d
	return o
}

// ObjectOf converts a network object to that of package status, which Store cannot write.
func ObjectOf(ref network.Ref, obj client.Object) *status.Object {
	m := ParseNetwork(obj)
	return &status.Object{
		Ref: ref, UID: string(obj.GetUID()),
		Generation: obj.GetGeneration(), ResourceVersion: obj.GetResourceVersion(),
		Deleting: m.Version.Deleting, Protected: hasInUseFinalizer(obj),
		Network: m.Network, Invalid: m.Err,
		IPAM: NetworkStatusOf(obj).IPAM,
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
