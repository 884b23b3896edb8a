// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/patchbay-cni/patchbay/operator/internal/render"
)

// installers are the managers of tools that install manifests. What they own becomes the operator's, so that its
// first apply removes what is not in the plan. kubectl edit, label, patch and the like have other names: what people
// have added with them stays.
func installers() []string {
	return []string{"before-first-apply", "helm", "kubectl", "kubectl-client-side-apply", "kubectl-create"}
}

// takeOver makes the operator the owner of what an installer has applied, if the operator has not applied the object
// yet. Without that, a field that the plan does not have would stay, and may be one that Kubernetes rejects beside
// those of the plan.
func (a *Applier) takeOver(ctx context.Context, o render.Object) error {
	live := metadataOf(o.GroupVersionKind())
	if err := a.live.Get(ctx, client.ObjectKeyFromObject(o), live); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		return fmt.Errorf("read %s: %w", describe(o), err)
	}
	fields, changed, err := transfer(live.ManagedFields)
	if err != nil {
		return fmt.Errorf("read managedFields of %s: %w", describe(o), err)
	}
	if !changed {
		return nil
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": live.UID},
		{"op": "replace", "path": "/metadata/managedFields", "value": fields},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.ResourceVersion},
	})
	if err != nil {
		return fmt.Errorf("encode managedFields of %s: %w", describe(o), err)
	}
	if err := a.writer.Patch(ctx, live, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(render.Manager)); err != nil {
		return fmt.Errorf("take over %s: %w", describe(o), err)
	}
	return nil
}

// transfer returns entries in which the operator has what installers had. It changes nothing if the operator has
// an entry already.
func transfer(entries []metav1.ManagedFieldsEntry) (out []metav1.ManagedFieldsEntry, changed bool, err error) {
	owned := fieldpath.NewSet()
	var own metav1.ManagedFieldsEntry
	for _, e := range entries {
		if e.Manager == render.Manager && e.Operation == metav1.ManagedFieldsOperationApply {
			return entries, false, nil
		}
		if e.Subresource != "" || e.FieldsV1 == nil || !slices.Contains(installers(), e.Manager) {
			out = append(out, e)
			continue
		}
		set := fieldpath.NewSet()
		if err := set.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
			return nil, false, fmt.Errorf("decode the fields of %s: %w", e.Manager, err)
		}
		owned = owned.Union(set)
		own = e
	}
	if own.Manager == "" {
		return entries, false, nil
	}
	text, err := owned.ToJSON()
	if err != nil {
		return nil, false, fmt.Errorf("encode fields: %w", err)
	}
	own.Manager, own.Operation, own.FieldsV1 = render.Manager, metav1.ManagedFieldsOperationApply, metav1.NewFieldsV1(string(text))
	return append(out, own), true, nil
}
