// SPDX-License-Identifier: Apache-2.0

package render

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// templatePath is where the Pod template of an object is, which is a Pod without
// apiVersion, kind and status.
func templatePath(object *unstructured.Unstructured) []string {
	switch object.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "Pod"}:
		return nil
	case schema.GroupKind{Group: "batch", Kind: "CronJob"}:
		return []string{"spec", "jobTemplate", "spec", "template"}
	}
	return []string{"spec", "template"}
}

// template returns an object's Pod template for reading or writing in place.
func template(object *unstructured.Unstructured) (map[string]any, bool) {
	path := templatePath(object)
	if len(path) == 0 {
		return object.Object, true
	}
	at, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	m, ok := at.(map[string]any)
	return m, ok && err == nil
}

// podOf returns the Pod that an object is, or makes of its template. An object with a
// template of something else makes none.
func podOf(object *unstructured.Unstructured) (*corev1.Pod, bool) {
	t, ok := template(object)
	if !ok {
		return nil, false
	}
	pod := &corev1.Pod{}
	part := map[string]any{"metadata": t["metadata"], "spec": t["spec"]}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(part, pod); err != nil {
		return nil, false
	}
	return pod, len(pod.Spec.Containers) > 0
}
