// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/objects"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// Cached says how the objects that this package caches are slimmed, and that slices
// and Endpoints of others are not cached at all; it is for cache.Options.
func Cached() map[client.Object]cache.ByObject {
	ours := labels.SelectorFromSet(labels.Set{discoveryv1.LabelManagedBy: svcwatcher.ManagedBy})
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}:                {Transform: new(slimmer).pod},
		&corev1.Service{}:            {Transform: slimService},
		&discoveryv1.EndpointSlice{}: {Label: ours, Transform: objects.Slim},
		&corev1.Endpoints{}:          {Label: ours, Transform: objects.Slim},
	}
}

// slimPod keeps what an endpoint is made from.
func slimPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Pod{ObjectMeta: identity(&pod.ObjectMeta)}
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

// slimService keeps what decides on the endpoints, and of a Service that is not ours
// that it is not.
func slimService(obj any) (any, error) {
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Service{ObjectMeta: identity(&svc.ObjectMeta)}
	if svcwatcher.Judge(svc).Verdict == svcwatcher.Foreign {
		return slim, nil
	}
	slim.Labels, slim.Annotations = svc.Labels, svcwatcher.Annotations(svc)
	s := svc.Spec
	slim.Spec = corev1.ServiceSpec{
		Type: s.Type, ClusterIP: s.ClusterIP, Selector: s.Selector, Ports: s.Ports,
		IPFamilies: s.IPFamilies, PublishNotReadyAddresses: s.PublishNotReadyAddresses,
	}
	return slim, nil
}

func identity(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}
