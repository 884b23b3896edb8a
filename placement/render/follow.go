// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reference names an object at the hub that another one needs where it runs.
type Reference struct {
	Group, Kind, Namespace, Name string
}

// Follow returns what an object names and needs beside it: the ConfigMaps, Secrets,
// ServiceAccount, volume and resource claims of its Pod template, the Service of a
// StatefulSet, the Secrets of a ServiceAccount, the Services and Secrets of an Ingress,
// the claim that another one is cloned from. The answer is sorted. What is optional or
// made later is in it, too: it may not exist.
func Follow(object *unstructured.Unstructured) []Reference {
	f := &follower{namespace: object.GetNamespace()}
	if _, ok := podOf(object); ok {
		t, _ := template(object)
		f.pod(t["spec"])
	}
	spec, _ := object.Object["spec"].(map[string]any)
	switch object.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		f.add(schema.GroupKind{Kind: "Service"}, spec["serviceName"])
		f.clones(spec["volumeClaimTemplates"])
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		f.clones([]any{object.Object})
	case schema.GroupKind{Kind: "ServiceAccount"}:
		f.held("Secret", object.Object["imagePullSecrets"])
	case schema.GroupKind{Group: "networking.k8s.io", Kind: "Ingress"}:
		f.ingress(spec)
	}
	slices.SortFunc(f.found, func(a, b Reference) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	return slices.Compact(f.found)
}

// Claims returns the names of the volume claims that the Pods of an object use: those that it
// names, and the templates of those that a StatefulSet makes for each Pod. Sorted.
func Claims(object *unstructured.Unstructured) []string {
	var names []string
	for _, r := range Follow(object) {
		if r.Group == "" && r.Kind == "PersistentVolumeClaim" {
			names = append(names, r.Name)
		}
	}
	if object.GroupVersionKind().GroupKind() == (schema.GroupKind{Group: "apps", Kind: "StatefulSet"}) {
		templates, _, _ := unstructured.NestedSlice(object.Object, "spec", "volumeClaimTemplates")
		for _, t := range templates {
			t, _ := t.(map[string]any)
			if name, _, _ := unstructured.NestedString(t, "metadata", "name"); name != "" {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// CanLead tells whether objects of a kind may name others that they need, so that those follow
// them: all kinds that are not known to name none.
func CanLead(kind schema.GroupKind) bool {
	switch kind {
	case schema.GroupKind{Kind: "ConfigMap"}, schema.GroupKind{Kind: "Secret"}, schema.GroupKind{Kind: "Service"}:
		return false
	}
	return true
}

// follower collects references in one namespace.
type follower struct {
	namespace string
	found     []Reference
}

// add collects a reference. No kind or no name is no reference, and every namespace has
// the ServiceAccount default.
func (f *follower) add(gk schema.GroupKind, name any) {
	text, _ := name.(string)
	if gk.Kind != "" && text != "" && (gk.Kind != "ServiceAccount" || text != "default") {
		f.found = append(f.found, Reference{Group: gk.Group, Kind: gk.Kind, Namespace: f.namespace, Name: text})
	}
}

// clones collects the claims that claims are copied from.
func (f *follower) clones(claims any) {
	list, _ := claims.([]any)
	for _, claim := range list {
		claim, _ := claim.(map[string]any)
		source, _, _ := unstructured.NestedStringMap(claim, "spec", "dataSource")
		if source["kind"] == "PersistentVolumeClaim" {
			f.add(schema.GroupKind{Kind: source["kind"]}, source["name"])
		}
	}
}

// ingress collects the Services that an Ingress leads to, at whatever depth, and its
// certificates.
func (f *follower) ingress(part any) {
	switch part := part.(type) {
	case []any:
		for _, item := range part {
			f.ingress(item)
		}
	case map[string]any:
		f.add(schema.GroupKind{Kind: "Secret"}, part["secretName"])
		if service, ok := part["service"].(map[string]any); ok {
			f.add(schema.GroupKind{Kind: "Service"}, service["name"])
		}
		for _, value := range part {
			f.ingress(value)
		}
	}
}
