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
	return ApplyStatus(ctx, c, ref, uid, fieldOwner, v1.NetworkStatus{Conditions: conditions})
}

// ApplyStatus is ApplyConditions with other fields of the status, which only this field owner may
// write.
func ApplyStatus(
	ctx context.Context, c client.StatusClient, ref network.Ref, uid types.UID, fieldOwner string, status v1.NetworkStatus,
) error {
	encoded, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return fmt.Errorf("encode status of %s: %w", ref, err)
	}
	if len(status.Conditions) == 0 {
		encoded["conditions"] = []any{} // The API server rejects an empty status.
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": encoded}}
	u.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(ref.Kind))
	u.SetNamespace(ref.Namespace)
	u.SetName(ref.Name)
	u.SetUID(uid)
	err = c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fieldOwner), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply status of %s: %w", ref, err)
	}
	return nil
}
