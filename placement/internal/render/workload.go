// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"maps"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/resource"
)

// Replicas tells how many replicas an object asks for, and whether its kind has any. Of
// a Job they are its completions, or its parallelism when it has none.
func Replicas(object *unstructured.Unstructured) (int32, bool) {
	if isJob(object) {
		if n, ok := specInt32(object, "completions"); ok {
			return n, true
		}
		n, ok := specInt32(object, "parallelism")
		if !ok {
			n = 1
		}
		return n, true
	}
	n, ok := specInt32(object, "replicas")
	switch gk := object.GroupVersionKind().GroupKind(); {
	case ok:
		return n, true
	case gk.Group == "apps" && (gk.Kind == "Deployment" || gk.Kind == "ReplicaSet" || gk.Kind == "StatefulSet"),
		gk == schema.GroupKind{Kind: "ReplicationController"}:
		return 1, true
	}
	return 0, false
}

// SetReplicas asks a cluster for n of an object's replicas, in place. Of a Job it sets
// completions, and parallelism in proportion, rounded up; n = 0 pauses it, as a Job
// without completions would be complete. An error names the object.
func SetReplicas(object *unstructured.Unstructured, n int32) error {
	set := func(field string, n int32) error {
		if err := unstructured.SetNestedField(object.Object, int64(n), "spec", field); err != nil {
			return fmt.Errorf("set spec.%s of %s %s/%s: %w", field, object.GetKind(), object.GetNamespace(), object.GetName(), err)
		}
		return nil
	}
	if !isJob(object) {
		return set("replicas", n)
	}
	completions, ok := specInt32(object, "completions")
	if !ok || n == 0 || completions == 0 {
		return set("parallelism", n)
	}
	parallelism, ok := specInt32(object, "parallelism")
	if !ok {
		parallelism = 1
	}
	part := (int64(parallelism)*int64(n) + int64(completions) - 1) / int64(completions)
	if err := set("parallelism", int32(min(part, math.MaxInt32))); err != nil {
		return err
	}
	return set("completions", n)
}

// Pauses tells whether asking for n replicas pauses the object: a Job, whose other numbers
// cannot change any more.
func Pauses(object *unstructured.Unstructured, n int32) bool { return isJob(object) && n == 0 }

// isJob tells whether an object is a Job.
func isJob(object *unstructured.Unstructured) bool {
	return object.GroupVersionKind().GroupKind() == schema.GroupKind{Group: "batch", Kind: "Job"}
}

// specInt32 reads a number of spec.
func specInt32(object *unstructured.Unstructured, field string) (int32, bool) {
	n, ok, err := unstructured.NestedInt64(object.Object, "spec", field)
	if !ok || err != nil || n < 0 || n > math.MaxInt32 {
		return 0, false
	}
	return int32(n), true
}

// PodRequests is what one replica's Pod requests, as the scheduler counts it; nil for an
// object that makes no Pods. Without a request a container's limit counts.
func PodRequests(object *unstructured.Unstructured) corev1.ResourceList {
	pod, ok := podFromTemplate(object)
	if !ok {
		return nil
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			requests := maps.Clone(list[i].Resources.Limits)
			if requests == nil {
				requests = corev1.ResourceList{}
			}
			maps.Copy(requests, list[i].Resources.Requests)
			list[i].Resources.Requests = requests
		}
	}
	return resource.PodRequests(pod, resource.PodResourcesOptions{})
}

// podFromTemplate returns the Pod that an object is, or makes of its template. An object with a
// template of something else makes none.
func podFromTemplate(object *unstructured.Unstructured) (*corev1.Pod, bool) {
	t, ok := podTemplate(object)
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

// podTemplate returns an object's Pod template for reading or writing in place.
func podTemplate(object *unstructured.Unstructured) (map[string]any, bool) {
	path := podTemplatePath(object)
	if len(path) == 0 {
		return object.Object, true
	}
	at, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	m, ok := at.(map[string]any)
	return m, ok && err == nil
}

// podTemplatePath is where the Pod template of an object is, which is a Pod without
// apiVersion, kind and status.
func podTemplatePath(object *unstructured.Unstructured) []string {
	switch object.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "Pod"}:
		return nil
	case schema.GroupKind{Group: "batch", Kind: "CronJob"}:
		return []string{"spec", "jobTemplate", "spec", "template"}
	}
	return []string{"spec", "template"}
}
