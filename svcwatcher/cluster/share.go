// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
)

// maxShared bounds what is remembered for sharing; beyond it, remembering starts anew.
const maxShared = 4096

// shared gives equal parts of cached objects the same memory: the Pods of one workload
// differ in little but their names. Nobody changes a cached object.
type shared[T any] struct {
	mu    sync.Mutex
	known map[string]T
}

// same returns the value that was given for this text before, or this one.
func (s *shared[T]) same(text string, value T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.known[text]; ok {
		return old
	}
	if s.known == nil || len(s.known) >= maxShared {
		s.known = map[string]T{}
	}
	s.known[text] = value
	return value
}

// intern returns one copy of a text that many objects have.
func intern(text string) string { return unique.Make(text).Value() }

// slimmer makes Pods slim that share what they have in common.
type slimmer struct {
	labels     shared[map[string]string]
	containers shared[[]corev1.Container]
	conditions shared[[]corev1.PodCondition]
}

// pod keeps what an endpoint is made from: of all that is cached, Pods are most.
func (s *slimmer) pod(obj any) (any, error) {
	slim, err := slimPod(obj)
	pod, ok := slim.(*corev1.Pod)
	if err != nil || !ok {
		return slim, err
	}
	pod.Namespace, pod.Spec.NodeName = intern(pod.Namespace), intern(pod.Spec.NodeName)
	pod.Spec.Subdomain, pod.Status.Phase = intern(pod.Spec.Subdomain), corev1.PodPhase(intern(string(pod.Status.Phase)))
	// fmt sorts maps.
	pod.Labels = s.labels.same(fmt.Sprintf("%q", pod.Labels), pod.Labels)
	if len(pod.Spec.Containers) > 0 {
		pod.Spec.Containers = s.containers.same(fmt.Sprintf("%q", pod.Spec.Containers[0].Ports), pod.Spec.Containers)
	}
	if len(pod.Status.Conditions) > 0 {
		pod.Status.Conditions = s.conditions.same(string(pod.Status.Conditions[0].Status), pod.Status.Conditions)
	}
	return pod, nil
}
