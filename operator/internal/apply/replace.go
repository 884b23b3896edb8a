// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/operator/internal/render"
)

// replace writes the whole spec of a policy or the webhooks of a configuration, so that what others have added is gone.
// It looks at no managedFields, which whoever may change the object can forge. What the controller writes stays. It
// changes no other objects.
func (a *Applier) replace(ctx context.Context, o render.Object) error {
	field := replacedField(o)
	if field == "" {
		return nil
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(o.GroupVersionKind())
	if err := a.live.Get(ctx, client.ObjectKeyFromObject(o), live); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		return fmt.Errorf("read %s: %w", describe(o), err)
	}
	desired := o.DeepCopy()
	keepCertificates(desired, live)
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": live.GetUID()},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
		{"op": "add", "path": "/" + field, "value": desired.Object[field]},
	})
	if err != nil {
		return fmt.Errorf("encode %s of %s: %w", field, describe(o), err)
	}
	if err := a.writer.Patch(ctx, live, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(render.Manager)); err != nil {
		return fmt.Errorf("replace %s of %s: %w", field, describe(o), err)
	}
	return nil
}

// replacedField returns the field of an object that nobody may add to, or "". Server-side apply keeps what others
// have added: one match condition disables a policy, and one selector a webhook.
func replacedField(o render.Object) string {
	switch o.Phase {
	case render.Policies:
		return "spec"
	case render.Webhooks:
		return "webhooks"
	}
	return ""
}

// keepCertificates copies what the controller writes into webhooks: the certificate authority, and the path with its
// token.
func keepCertificates(desired, live *unstructured.Unstructured) {
	configs := clientConfigs(live)
	for name, config := range clientConfigs(desired) {
		had := configs[name]
		if bundle, ok := had["caBundle"]; ok {
			config["caBundle"] = bundle
		}
		service, _ := config["service"].(map[string]any)
		old, _ := had["service"].(map[string]any)
		if path, ok := old["path"]; ok && service != nil {
			service["path"] = path
		}
	}
}

// clientConfigs returns where the webhooks of a configuration are, by the webhooks' names.
func clientConfigs(o *unstructured.Unstructured) map[any]map[string]any {
	webhooks, _ := o.Object["webhooks"].([]any)
	all := map[any]map[string]any{}
	for _, w := range webhooks {
		webhook, _ := w.(map[string]any)
		if config, ok := webhook["clientConfig"].(map[string]any); ok {
			all[webhook["name"]] = config
		}
	}
	return all
}
