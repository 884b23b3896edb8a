// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reference identifies an object at the hub that another object needs in its cluster.
type Reference struct {
	Group, Kind, Namespace, Name string
}

// Dependencies returns the objects that an object names and needs in its cluster, sorted: the ConfigMaps,
// Secrets, ServiceAccount, volume claims and resource claims of its Pod template, the Service of a
// StatefulSet, the Secrets of a ServiceAccount, the Services and Secrets of an Ingress, and the claim from
// which another one is cloned. Some of them may not exist, because they are optional or created later.
func Dependencies(object *unstructured.Unstructured) []Reference {
	f := &dependencyCollector{namespace: object.GetNamespace()}
	if _, ok := podFromTemplate(object); ok {
		t, _ := podTemplate(object)
		f.addPodSpec(t["spec"])
	}
	spec, _ := object.Object["spec"].(map[string]any)
	switch object.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		f.addReference(schema.GroupKind{Kind: "Service"}, spec["serviceName"])
		f.addCloneSources(spec["volumeClaimTemplates"])
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		f.addCloneSources([]any{object.Object})
	case schema.GroupKind{Kind: "ServiceAccount"}:
		f.addNamedObjects("Secret", object.Object["imagePullSecrets"])
	case schema.GroupKind{Group: "networking.k8s.io", Kind: "Ingress"}:
		f.addIngress(spec)
	}
	slices.SortFunc(f.found, func(a, b Reference) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	return slices.Compact(f.found)
}

// VolumeClaimNames returns the names of the volume claims that an object's Pods use, and of a StatefulSet's
// volumeClaimTemplates, sorted.
func VolumeClaimNames(object *unstructured.Unstructured) []string {
	var names []string
	for _, r := range Dependencies(object) {
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

// MayHaveDependencies tells whether objects of a kind may have Dependencies. It is true for unknown kinds.
func MayHaveDependencies(kind schema.GroupKind) bool {
	switch kind {
	case schema.GroupKind{Kind: "ConfigMap"}, schema.GroupKind{Kind: "Secret"}, schema.GroupKind{Kind: "Service"}:
		return false
	}
	return true
}

// MayBeDependency tells whether objects of a kind may be among the Dependencies of others, or of CompanionKinds.
func MayBeDependency(kind schema.GroupKind) bool {
	switch kind.Group {
	case "":
		return slices.Contains([]string{"ConfigMap", "PersistentVolumeClaim", "Secret", "Service", "ServiceAccount"}, kind.Kind)
	case "resource.k8s.io":
		return kind.Kind == "ResourceClaim" || kind.Kind == "ResourceClaimTemplate"
	}
	return slices.ContainsFunc(CompanionKinds(), func(gvk schema.GroupVersionKind) bool { return gvk.GroupKind() == kind })
}

// dependencyCollector collects the references of an object in one namespace.
type dependencyCollector struct {
	namespace string
	found     []Reference
}

// addReference adds a reference with a kind and a name. It ignores the ServiceAccount default, which each
// namespace has.
func (f *dependencyCollector) addReference(gk schema.GroupKind, name any) {
	text, _ := name.(string)
	if gk.Kind != "" && text != "" && (gk.Kind != "ServiceAccount" || text != "default") {
		f.found = append(f.found, Reference{Group: gk.Group, Kind: gk.Kind, Namespace: f.namespace, Name: text})
	}
}

// addPodSpec adds the references of a part of a Pod's spec. It reads all fields by their names, so that it
// also finds references in volumes of newer types.
func (f *dependencyCollector) addPodSpec(part any) {
	switch part := part.(type) {
	case []any:
		for _, item := range part {
			f.addPodSpec(item)
		}
	case map[string]any:
		for field, value := range part {
			f.addReference(kindOfNameField(field), value)
			f.addNamedObjects(kindOfReferenceField(field), value)
			f.addPodSpec(value)
		}
	}
}

// kindOfNameField returns the kind of the object whose name is the value of a field in a Pod's spec.
func kindOfNameField(field string) schema.GroupKind {
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

// kindOfReferenceField returns the kind of the object that a field in a Pod's spec refers to with a name or
// secretName in it: in volumes, projections, environments and credentials of volumes.
func kindOfReferenceField(field string) string {
	switch field {
	case "configMap", "configMapRef", "configMapKeyRef":
		return "ConfigMap"
	case "secret", "secretRef", "secretKeyRef", "azureFile", "nodePublishSecretRef", "imagePullSecrets":
		return "Secret"
	}
	return ""
}

// addNamedObjects adds the references with a name or secretName in a value, or in each of its items.
func (f *dependencyCollector) addNamedObjects(kind string, value any) {
	items, ok := value.([]any)
	if !ok {
		items = []any{value}
	}
	for _, item := range items {
		if item, ok := item.(map[string]any); ok {
			f.addReference(schema.GroupKind{Kind: kind}, item["name"])
			f.addReference(schema.GroupKind{Kind: kind}, item["secretName"])
		}
	}
}

// addCloneSources adds the claims from which claims are cloned.
func (f *dependencyCollector) addCloneSources(claims any) {
	list, _ := claims.([]any)
	for _, claim := range list {
		claim, _ := claim.(map[string]any)
		source, _, _ := unstructured.NestedStringMap(claim, "spec", "dataSource")
		if source["kind"] == "PersistentVolumeClaim" {
			f.addReference(schema.GroupKind{Kind: source["kind"]}, source["name"])
		}
	}
}

// addIngress adds the Services and the certificate Secrets of an Ingress.
func (f *dependencyCollector) addIngress(part any) {
	switch part := part.(type) {
	case []any:
		for _, item := range part {
			f.addIngress(item)
		}
	case map[string]any:
		f.addReference(schema.GroupKind{Kind: "Secret"}, part["secretName"])
		if service, ok := part["service"].(map[string]any); ok {
			f.addReference(schema.GroupKind{Kind: "Service"}, service["name"])
		}
		for _, value := range part {
			f.addIngress(value)
		}
	}
}

// CompanionKinds are the kinds whose objects refer to the workload that they are for.
func CompanionKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Version: "v1", Kind: "Service"},
		{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	}
}

// IsCompanionOf tells whether an object of CompanionKinds is for a workload: a Service that selects its Pods,
// or a HorizontalPodAutoscaler that scales it.
func IsCompanionOf(object, workload *unstructured.Unstructured) bool {
	if object.GetNamespace() != workload.GetNamespace() {
		return false
	}
	if object.GetKind() == "Service" {
		return serviceSelects(object, workload)
	}
	return Scales(object, workload.GroupVersionKind().GroupKind(), workload.GetName())
}

// serviceSelects tells whether a Service selects the Pods of a workload. A Service without a selector selects
// none.
func serviceSelects(service, workload *unstructured.Unstructured) bool {
	want, _, err := unstructured.NestedStringMap(service.Object, "spec", "selector")
	if len(want) == 0 && err == nil {
		want, err = networkSelector(service)
	}
	pod, ok := podFromTemplate(workload)
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

// networkSelector returns the selector of a Service on Patchbay's networks, whose spec has none.
func networkSelector(service *unstructured.Unstructured) (selector map[string]string, err error) {
	annotations := service.GetAnnotations()
	text := cmp.Or(annotations["danm.io/selector"], annotations["danm.k8s.io/selector"])
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &selector); err != nil {
		return nil, fmt.Errorf("decode the selector of Service %s: %w", service.GetName(), err)
	}
	return selector, nil
}
