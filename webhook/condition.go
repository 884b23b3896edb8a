// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// refereeManager owns the condition for server-side apply, and no other field.
const refereeManager = "patchbay-controller-referee"

// apply makes the condition the one that the network has, or takes it off. It names
// the UID and no resourceVersion: it never fails because somebody claims addresses.
func (r *referee) apply(ctx context.Context, ref network.Ref, obj client.Object, conflict error) error {
	all := []any{}
	if conflict != nil {
		c := conflictCondition(obj, conflict)
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c)
		if err != nil {
			return fmt.Errorf("encode condition: %w", err)
		}
		all = append(all, u)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": all}}}
	u.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(ref.Kind))
	u.SetNamespace(ref.Namespace)
	u.SetName(ref.Name)
	u.SetUID(obj.GetUID())
	return r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(refereeManager), client.ForceOwnership)
}
