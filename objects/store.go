// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
)

// Store reads and writes networks for ipam/claims, one request per call, never
// from a cache and never repeated here.
type Store struct {
	c client.Client
}

var _ claims.Store = (*Store)(nil)

// NewStore returns a store over a client that reads from the API server.
func NewStore(c client.Client) *Store { return &Store{c: c} }

// remainder is what Store keeps in claims.Object.Extra: what a PUT of status must
// repeat, since it replaces all of it, and what it does not change and must repeat all the
// same: who applied a label or an annotation that is missing in it would own it no longer.
type remainder struct {
	status              v1.NetworkStatus
	finalizers          []string
	labels, annotations map[string]string
	owners              []metav1.OwnerReference
}

// Get implements claims.Store.
func (s *Store) Get(ctx context.Context, ref network.Ref) (*claims.Object, error) {
	obj, err := New(ref.Kind)
	if err != nil {
		return nil, err
	}
	if err := s.c.Get(ctx, Key(ref), obj); err != nil {
		return nil, storeError("get", ref, err)
	}
	return ObjectOf(ref, obj), nil
}

// Update implements claims.Store. The UID goes along: the API server refuses it
// as a conflict when the object is another one.
func (s *Store) Update(ctx context.Context, o *claims.Object) (*claims.Object, error) {
	obj, err := New(o.Ref.Kind)
	if err != nil {
		return nil, err
	}
	obj.SetNamespace(o.Ref.Namespace)
	obj.SetName(o.Ref.Name)
	obj.SetUID(types.UID(o.UID))
	obj.SetResourceVersion(o.ResourceVersion)
	status := StatusOf(obj)
	if kept, ok := o.Extra.(remainder); ok {
		kept.status.DeepCopyInto(status)
		obj.SetFinalizers(kept.finalizers)
		obj.SetLabels(kept.labels)
		obj.SetAnnotations(kept.annotations)
		obj.SetOwnerReferences(kept.owners)
	}
	status.IPAM, status.Allocated, status.Capacity = o.IPAM, o.Allocated, o.Capacity
	if err := s.c.Status().Update(ctx, obj); err != nil {
		return nil, storeError("update status of", o.Ref, err)
	}
	return ObjectOf(o.Ref, obj), nil
}

// ObjectOf translates an object that was just read or written for ipam/claims.
func ObjectOf(ref network.Ref, obj client.Object) *claims.Object {
	m := ModelOf(obj)
	status := *StatusOf(obj)
	kept := remainder{
		status: status, finalizers: obj.GetFinalizers(),
		labels: obj.GetLabels(), annotations: obj.GetAnnotations(), owners: obj.GetOwnerReferences(),
	}
	kept.status.IPAM = nil
	return &claims.Object{
		Ref: ref, UID: string(obj.GetUID()),
		Generation: obj.GetGeneration(), ResourceVersion: obj.GetResourceVersion(),
		Deleting: m.Version.Deleting, Protected: protected(obj),
		Network: m.Network, Invalid: m.Err,
		IPAM: status.IPAM, Allocated: status.Allocated, Capacity: status.Capacity,
		Extra: kept,
	}
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
