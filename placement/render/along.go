// SPDX-License-Identifier: Apache-2.0

package render

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
