// SPDX-License-Identifier: Apache-2.0

package render

import "k8s.io/apimachinery/pkg/runtime/schema"

// holderOf is the kind of the object that a field of a Pod's spec, at any depth, names by
// a name or secretName within it: volumes and their projections, environments, and how
// volumes of many kinds are opened.
func holderOf(field string) string {
	switch field {
	case "configMap", "configMapRef", "configMapKeyRef":
		return "ConfigMap"
	case "secret", "secretRef", "secretKeyRef", "azureFile", "nodePublishSecretRef", "imagePullSecrets":
		return "Secret"
	}
	return ""
}

// kindOf is the kind of the object whose name a field of a Pod's spec is.
func kindOf(field string) schema.GroupKind {
	switch field {
	case "serviceAccountName":
		return schema.GroupKind{Kind: "ServiceAccount"}
	case "claimName":
		return schema.GroupKind{Kind: "PersistentVolumeClaim"}
	case "resourceClaimName":
		return schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourceClaim"}
	case "resourceClaimTemplateName":
		return schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourceClaimTemplate"}
	}
	return schema.GroupKind{}
}

// pod collects what a part of a Pod's spec names. It reads the fields as they are: a
// volume of a kind that is newer than this program is followed, too.
func (f *follower) pod(part any) {
	switch part := part.(type) {
	case []any:
		for _, item := range part {
			f.pod(item)
		}
	case map[string]any:
		for field, value := range part {
			f.add(kindOf(field), value)
			f.held(holderOf(field), value)
			f.pod(value)
		}
	}
}

// held collects what a field names by what is within it, or within each of its items.
func (f *follower) held(kind string, value any) {
	items, ok := value.([]any)
	if !ok {
		items = []any{value}
	}
	for _, item := range items {
		if item, ok := item.(map[string]any); ok {
			f.add(schema.GroupKind{Kind: kind}, item["name"])
			f.add(schema.GroupKind{Kind: kind}, item["secretName"])
		}
	}
}
