// SPDX-License-Identifier: Apache-2.0

package works

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/resource"
)

// observeInformer calls note for each change of what an informer sees, of which it keeps what slim
// leaves.
func observeInformer(informer toolscache.SharedIndexInformer, slim toolscache.TransformFunc, note func(metav1.Object)) error {
	if err := informer.SetTransform(slim); err != nil {
		return fmt.Errorf("set transform: %w", err)
	}
	if _, err := informer.AddEventHandler(eventHandler(note)); err != nil {
		return fmt.Errorf("add handler: %w", err)
	}
	return nil
}

// eventHandler calls note for what comes, changes or goes.
func eventHandler(note func(metav1.Object)) toolscache.ResourceEventHandler {
	tell := func(o any) {
		if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if object, ok := o.(metav1.Object); ok {
			note(object)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: tell, DeleteFunc: tell, UpdateFunc: func(before, after any) {
		a, okA := before.(metav1.Object)
		b, okB := after.(metav1.Object)
		if okA && okB && a.GetResourceVersion() == b.GetResourceVersion() {
			return // a new list, nothing else
		}
		tell(after)
	}}
}

// trimPod keeps of a Pod what condense, the index, the sum of requests and the claims need.
func trimPod(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	slim := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			OwnerReferences: pod.OwnerReferences, Finalizers: pod.Finalizers,
			DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, Overhead: podRequests(pod)},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: truncateMessage(pod.Status.Message)},
	}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			slim.Spec.Volumes = append(slim.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: v.PersistentVolumeClaim}})
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			slim.Status.Conditions = append(slim.Status.Conditions, c)
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if c.State.Waiting != nil {
			slim.Status.ContainerStatuses = append(slim.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: c.Name, State: corev1.ContainerState{Waiting: c.State.Waiting},
			})
		}
	}
	return slim, nil
}

// podRequests is what the scheduler reserves for a Pod, as far as Clusters tell of it.
func podRequests(pod *corev1.Pod) corev1.ResourceList {
	sum := resource.PodRequests(pod, resource.PodResourcesOptions{})
	maps.DeleteFunc(sum, func(name corev1.ResourceName, _ apiresource.Quantity) bool {
		return name != corev1.ResourceCPU && name != corev1.ResourceMemory
	})
	return sum
}

// trimNode keeps what a node can carry; its phase is Running if it is ready and takes
// Pods.
func trimNode(o any) (any, error) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	slim := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion}}
	slim.Status.Allocatable = corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		if q, ok := node.Status.Allocatable[name]; ok {
			slim.Status.Allocatable[name] = q
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && !node.Spec.Unschedulable {
			slim.Status.Phase = corev1.NodeRunning
		}
	}
	return slim, nil
}

// trimMetadata keeps names, versions and owners.
func trimMetadata(o any) (any, error) {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		return &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, OwnerReferences: m.OwnerReferences,
			Finalizers: m.Finalizers, DeletionTimestamp: m.DeletionTimestamp, DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds,
		}}, nil
	}
	return o, nil
}
