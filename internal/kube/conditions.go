// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// ApplyConditions writes conditions into a network's status by server-side apply. A field owner
// must own the same condition types in every call: one that it applied before and leaves out
// now is removed, and those of other owners stay.
//
// The request names the UID and no resourceVersion, so that it fails with a conflict for another
// network of the same name, and never because a node claims addresses.
func ApplyConditions(
	ctx context.Context, c client.StatusClient, ref network.Ref, uid types.UID, fieldOwner string, conditions ...metav1.Condition,
) error {
	list := make([]any, len(conditions))
	for i := range conditions {
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&conditions[i])
		if err != nil {
			return fmt.Errorf("encode condition %s of %s: %w", conditions[i].Type, ref, err)
		}
		list[i] = u
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": list}}}
	u.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(ref.Kind))
	u.SetNamespace(ref.Namespace)
	u.SetName(ref.Name)
	u.SetUID(uid)
	err := c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fieldOwner), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply conditions of %s: %w", ref, err)
	}
	return nil
}
