// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reference names an object at the hub that another one needs where it runs.
type Reference struct {
	Group, Kind, Namespace, Name string
}

// Follow returns what an object needs beside it: the ConfigMaps, Secrets, ServiceAccount
// and PersistentVolumeClaims of its Pod template, the Service of a StatefulSet, the
// Secrets of a ServiceAccount, the Services and Secrets of an Ingress. The answer is
// sorted. What is optional or made later is in it, too: it may not exist.
func Follow(object *unstructured.Unstructured) []Reference {
	f := &follower{namespace: object.GetNamespace()}
	if pod, ok := podOf(object); ok {
		f.pod(&pod.Spec)
	}
	switch object.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		name, _, _ := unstructured.NestedString(object.Object, "spec", "serviceName")
		f.add("Service", name)
	case schema.GroupKind{Kind: "ServiceAccount"}:
		account := &corev1.ServiceAccount{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, account); err == nil {
			f.pulls(account.ImagePullSecrets)
		}
	case schema.GroupKind{Group: networkingv1.GroupName, Kind: "Ingress"}:
		ingress := &networkingv1.Ingress{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, ingress); err == nil {
			f.ingress(&ingress.Spec)
		}
	}
	slices.SortFunc(f.found, func(a, b Reference) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	return slices.Compact(f.found)
}

// Selects tells whether a Service selects the Pods of a workload.
func Selects(service, workload *unstructured.Unstructured) bool {
	want, _, err := unstructured.NestedStringMap(service.Object, "spec", "selector")
	pod, ok := podOf(workload)
	if err != nil || !ok || len(want) == 0 || service.GetNamespace() != workload.GetNamespace() {
		return false
	}
	for key, value := range want {
		if has, ok := pod.Labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// follower collects references in one namespace.
type follower struct {
	namespace string
	found     []Reference
}

// add collects a reference to a kind of the core group; no name is no reference.
func (f *follower) add(kind string, names ...string) {
	for _, name := range names {
		if name != "" {
			f.found = append(f.found, Reference{Kind: kind, Namespace: f.namespace, Name: name})
		}
	}
}
