// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// fieldManager owns our conditions for server-side apply, and no other field.
const fieldManager = "patchbay-controller-addresses"

// apply makes conditions the ones of ours that the network has. It names the UID
// and no resourceVersion: it fails on another network of the same name, and never
// because somebody claims addresses. A condition of ours that is not in the list is
// removed, as this manager does not want it any more.
func (c *Controller) apply(ctx context.Context, r reading, conditions []metav1.Condition) error {
	all := make([]any, len(conditions))
	for i := range conditions {
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&conditions[i])
		if err != nil {
			return fmt.Errorf("encode condition of %s: %w", r.Ref, err)
		}
		all[i] = u
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": all}}}
	u.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(r.Ref.Kind))
	u.SetNamespace(r.Ref.Namespace)
	u.SetName(r.Ref.Name)
	u.SetUID(r.obj.GetUID())
	err := c.direct.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fieldManager), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write conditions of %s: %w", r.Ref, err)
	}
	return nil
}
