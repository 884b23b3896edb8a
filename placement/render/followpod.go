// SPDX-License-Identifier: Apache-2.0

package render

import "k8s.io/apimachinery/pkg/runtime/schema"

// named are the fields of a Pod's spec, at any depth, that name an object by a field
// name or secretName within them: volumes and their projections, environments, and how
// volumes of many kinds are opened.
var named = map[string]string{
	"configMap": "ConfigMap", "configMapRef": "ConfigMap", "configMapKeyRef": "ConfigMap",
	"secret": "Secret", "secretRef": "Secret", "secretKeyRef": "Secret", "azureFile": "Secret",
	"nodePublishSecretRef": "Secret", "imagePullSecrets": "Secret",
}

// names are those that hold the name itself.
var names = map[string]schema.GroupKind{
	"serviceAccountName":        {Kind: "ServiceAccount"},
	"claimName":                 {Kind: "PersistentVolumeClaim"},
	"resourceClaimName":         {Group: "resource.k8s.io", Kind: "ResourceClaim"},
	"resourceClaimTemplateName": {Group: "resource.k8s.io", Kind: "ResourceClaimTemplate"},
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
			if gk, ok := names[field]; ok {
				f.add(gk, value)
			}
			f.named(field, value)
			f.pod(value)
		}
	}
}

// named collects what one field names, or each item of it.
func (f *follower) named(field string, value any) {
	kind, ok := named[field]
	if !ok {
		return
	}
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
