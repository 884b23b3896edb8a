// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
)

// Replicas returns the number of replicas of an object, and whether its kind has replicas. For a Job they are
// its completions, or its parallelism when it has no completions.
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

// SetReplicas sets the replicas of an object to n, in place. For a Job it sets completions, and parallelism in
// proportion, rounded up; with n = 0 it sets parallelism only, which pauses the Job, because a Job with 0
// completions would be complete. An error names the object.
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

// Pauses tells whether n replicas pause the object: a Job, whose completions cannot change any more.
func Pauses(object *unstructured.Unstructured, n int32) bool { return isJob(object) && n == 0 }

// isJob tells whether an object is a Job.
func isJob(object *unstructured.Unstructured) bool {
	return object.GroupVersionKind().GroupKind() == schema.GroupKind{Group: "batch", Kind: "Job"}
}

// HasFinished tells whether a Job or a Pod has run to its end, well or not.
func HasFinished(object *unstructured.Unstructured) bool {
	if !isJob(object) {
		phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
		return object.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "Pod"} && (phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed))
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["status"] == "True" && (condition["type"] == string(batchv1.JobComplete) || condition["type"] == string(batchv1.JobFailed))
	})
}

// specInt32 returns a field of spec with a number from 0 to math.MaxInt32.
func specInt32(object *unstructured.Unstructured, field string) (int32, bool) {
	n, ok, err := unstructured.NestedInt64(object.Object, "spec", field)
	if !ok || err != nil || n < 0 || n > math.MaxInt32 {
		return 0, false
	}
	return int32(n), true
}

// PodRequests returns the requests of one replica's Pod, as the scheduler counts them; nil for an object without
// Pods. The limits of a container without requests count.
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

// GracePeriod returns how long a Pod of the object may take to stop; 0 for an object without Pods.
func GracePeriod(object *unstructured.Unstructured) time.Duration {
	pod, ok := podFromTemplate(object)
	if !ok {
		return 0
	}
	seconds := ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	return time.Duration(min(max(seconds, 0), maxGracePeriodSeconds)) * time.Second
}

// maxGracePeriodSeconds bounds what a user may set, so that a duration does not overflow.
const maxGracePeriodSeconds = 7 * 24 * 60 * 60

// PodPriority returns the priority of an object's Pods, nil where the object does not have it, and the PriorityClass
// that its Pod template names.
func PodPriority(object *unstructured.Unstructured) (priority *int32, class string) {
	pod, ok := podFromTemplate(object)
	if !ok {
		return nil, ""
	}
	return pod.Spec.Priority, pod.Spec.PriorityClassName
}

// podFromTemplate returns the Pod that an object is, or creates from its template; false for an object without a
// Pod template.
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

// podTemplate returns an object's Pod template, for changes in place.
func podTemplate(object *unstructured.Unstructured) (map[string]any, bool) {
	path := podTemplatePath(object)
	if len(path) == 0 {
		return object.Object, true
	}
	at, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	m, ok := at.(map[string]any)
	return m, ok && err == nil
}

// podTemplatePath returns the path of an object's Pod template.
func podTemplatePath(object *unstructured.Unstructured) []string {
	switch object.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "Pod"}:
		return nil
	case schema.GroupKind{Group: "batch", Kind: "CronJob"}:
		return []string{"spec", "jobTemplate", "spec", "template"}
	}
	return []string{"spec", "template"}
}
