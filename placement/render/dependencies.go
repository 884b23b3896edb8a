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

// Along are the kinds whose objects say themselves which workload they are for.
func Along() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Version: "v1", Kind: "Service"},
		{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	}
}

// GoesAlong tells whether an object of one of those kinds is for a workload: a Service
// that selects its Pods, or a HorizontalPodAutoscaler that scales it.
func GoesAlong(object, workload *unstructured.Unstructured) bool {
	if object.GetNamespace() != workload.GetNamespace() {
		return false
	}
	if object.GetKind() == "Service" {
		return selects(object, workload)
	}
	target, _, _ := unstructured.NestedStringMap(object.Object, "spec", "scaleTargetRef")
	gk := schema.FromAPIVersionAndKind(target["apiVersion"], target["kind"]).GroupKind()
	return gk == workload.GroupVersionKind().GroupKind() && target["name"] == workload.GetName()
}

// selects tells whether a Service selects the Pods of a workload. Without a selector its
// endpoints are made by hand.
func selects(service, workload *unstructured.Unstructured) bool {
	want, _, err := unstructured.NestedStringMap(service.Object, "spec", "selector")
	pod, ok := podOf(workload)
	if err != nil || !ok || len(want) == 0 {
		return false
	}
	for key, value := range want {
		if has, ok := pod.Labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}
