// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// CacheByObject returns how the objects that this package caches are stripped, for cache.Options.
// EndpointSlices and Endpoints of other owners are not cached at all.
func CacheByObject() map[client.Object]cache.ByObject {
	ours := labels.SelectorFromSet(labels.Set{discoveryv1.LabelManagedBy: svcwatcher.ManagedBy})
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}:                {Transform: new(podSlimmer).transform},
		&corev1.Service{}:            {Transform: slimService},
		&discoveryv1.EndpointSlice{}: {Label: ours, Transform: kube.StripUnusedFields},
		&corev1.Endpoints{}:          {Label: ours, Transform: kube.StripUnusedFields},
	}
}

// podSlimmer strips Pods, and lets them share equal parts in memory.
type podSlimmer struct {
	labels     interner[map[string]string]
	containers interner[[]corev1.Container]
	conditions interner[[]corev1.PodCondition]
}

// transform is a cache.TransformFunc. Pods are most of what is cached.
func (s *podSlimmer) transform(obj any) (any, error) {
	slim, err := slimPod(obj)
	pod, ok := slim.(*corev1.Pod)
	if err != nil || !ok {
		return slim, err
	}
	pod.Namespace, pod.Spec.NodeName = internString(pod.Namespace), internString(pod.Spec.NodeName)
	pod.Spec.Subdomain, pod.Status.Phase = internString(pod.Spec.Subdomain), corev1.PodPhase(internString(string(pod.Status.Phase)))
	// fmt prints maps in sorted order.
	pod.Labels = s.labels.intern(fmt.Sprintf("%q", pod.Labels), pod.Labels)
	if len(pod.Spec.Containers) > 0 {
		pod.Spec.Containers = s.containers.intern(fmt.Sprintf("%q", pod.Spec.Containers[0].Ports), pod.Spec.Containers)
	}
	if len(pod.Status.Conditions) > 0 {
		pod.Status.Conditions = s.conditions.intern(string(pod.Status.Conditions[0].Status), pod.Status.Conditions)
	}
	return pod, nil
}

// slimPod keeps the fields that an endpoint is computed from.
func slimPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Pod{ObjectMeta: identifyingMeta(&pod.ObjectMeta)}
	slim.Labels, slim.DeletionTimestamp = pod.Labels, pod.DeletionTimestamp
	slim.Spec.NodeName, slim.Spec.Hostname, slim.Spec.Subdomain = pod.Spec.NodeName, pod.Spec.Hostname, pod.Spec.Subdomain
	if ports := svcwatcher.NamedPorts(&pod.Spec); len(ports) > 0 {
		slim.Spec.Containers = []corev1.Container{{Ports: ports}}
	}
	slim.Status.Phase, slim.Status.PodIPs = pod.Status.Phase, pod.Status.PodIPs
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			slim.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return slim, nil
}

// maxInterned bounds the values that an interner remembers; beyond it, the interner forgets all.
const maxInterned = 4096

// interner lets equal parts of cached objects share memory: the Pods of one workload differ in
// little but their names. Cached objects must not be modified.
type interner[T any] struct {
	mu    sync.Mutex
	known map[string]T
}

// intern returns the value that was first given for this text.
func (s *interner[T]) intern(text string, value T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.known[text]; ok {
		return old
	}
	if s.known == nil || len(s.known) >= maxInterned {
		s.known = map[string]T{}
	}
	s.known[text] = value
	return value
}

// internString returns a shared copy of a text that many objects have.
func internString(text string) string { return unique.Make(text).Value() }

// slimService keeps the fields that an endpoint is computed from. Of an unmanaged Service it keeps
// only the metadata.
func slimService(obj any) (any, error) {
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Service{ObjectMeta: identifyingMeta(&svc.ObjectMeta)}
	if svcwatcher.Classify(svc).Class == svcwatcher.Unmanaged {
		return slim, nil
	}
	slim.Labels, slim.Annotations = svc.Labels, network.OwnAnnotations(svc.Annotations)
	s := svc.Spec
	slim.Spec = corev1.ServiceSpec{
		Type: s.Type, ClusterIP: s.ClusterIP, Selector: s.Selector, Ports: s.Ports,
		IPFamilies: s.IPFamilies, PublishNotReadyAddresses: s.PublishNotReadyAddresses,
	}
	return slim, nil
}

func identifyingMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}
