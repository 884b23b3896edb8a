// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// protected reports whether an object has our finalizer.
func protected(obj client.Object) bool {
	return slices.Contains(obj.GetFinalizers(), v1.InUseFinalizer)
}

// Protect implements claims.Store: a merge patch that holds only metadata, with
// UID and resourceVersion as preconditions. Finalizers of others stay.
func (s *Store) Protect(ctx context.Context, o *claims.Object, on bool) (*claims.Object, error) {
	obj, err := New(o.Ref.Kind)
	if err != nil {
		return nil, err
	}
	kept, _ := o.Extra.(remainder)
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
	if err := s.c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return nil, storeError("set finalizer of", o.Ref, err)
	}
	return ObjectOf(o.Ref, obj), nil
}
