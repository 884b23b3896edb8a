// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Bounds of what a report says of Pods.
const (
	maxBroken  = 20
	maxMessage = 256
	// maxDepth bounds the walk from a Pod to its workload: CronJob, Job, Pod is 2.
	maxDepth = 5
)

// byOwner indexes objects by the UID of the controller that made them.
const byOwner = "owner"

// pods finds the Pods of a workload by their ownerReferences.
type pods struct {
	// pods and owners (ReplicaSets, Jobs, StatefulSets, DaemonSets) have the index byOwner.
	pods   cache.Indexer
	owners []cache.Indexer
}

// ownerIndex implements byOwner.
func ownerIndex(o any) ([]string, error) {
	object, ok := o.(metav1.Object)
	if !ok {
		return nil, nil
	}
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
		return []string{string(owner.UID)}, nil
	}
	return nil, nil
}

// of counts the Pods of the object with that UID.
func (p *pods) of(uid types.UID) *v1alpha1.Associated {
	if p == nil {
		return nil
	}
	a := &v1alpha1.Associated{}
	for _, pod := range p.below(uid, maxDepth) {
		reason, message, broken := condense(pod)
		if a.Pods == nil {
			a.Pods = map[string]int32{}
		}
		a.Pods[reason]++
		if broken {
			a.Broken = append(a.Broken, v1alpha1.BrokenPod{Name: pod.Name, Reason: reason, Message: message})
		}
	}
	slices.SortFunc(a.Broken, func(x, y v1alpha1.BrokenPod) int { return cmp.Compare(x.Name, y.Name) })
	a.Broken = a.Broken[:min(len(a.Broken), maxBroken)]
	if len(a.Pods) == 0 {
		return nil
	}
	return a
}

func (p *pods) below(uid types.UID, depth int) []*corev1.Pod {
	var all []*corev1.Pod
	found, _ := p.pods.ByIndex(byOwner, string(uid)) // fails only without the index
	for _, o := range found {
		if pod, ok := o.(*corev1.Pod); ok {
			all = append(all, pod)
		}
	}
	for _, owners := range p.owners {
		if depth == 0 {
			break
		}
		children, _ := owners.ByIndex(byOwner, string(uid))
		for _, o := range children {
			if child, ok := o.(metav1.Object); ok {
				all = append(all, p.below(child.GetUID(), depth-1)...)
			}
		}
	}
	return all
}

// roots are the UIDs from an object up to what nobody here owns.
func (p *pods) roots(o metav1.Object) []types.UID {
	uids := []types.UID{o.GetUID()}
	for range maxDepth {
		owner := metav1.GetControllerOfNoCopy(o)
		if owner == nil {
			break
		}
		uids = append(uids, owner.UID)
		if o = p.find(o.GetNamespace()+"/"+owner.Name, owner.UID); o == nil {
			break
		}
	}
	return uids
}

func (p *pods) find(key string, uid types.UID) metav1.Object {
	for _, owners := range p.owners {
		item, exists, err := owners.GetByKey(key)
		if object, ok := item.(metav1.Object); ok && exists && err == nil && object.GetUID() == uid {
			return object
		}
	}
	return nil
}

// condense says how a Pod is in one word: its phase, or why it waits.
func condense(pod *corev1.Pod) (reason, message string, broken bool) {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return w.Reason, shorten(w.Message), true
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.Reason, shorten(c.Message), true
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return cmp.Or(pod.Status.Reason, string(corev1.PodFailed)), shorten(pod.Status.Message), true
	}
	return string(pod.Status.Phase), "", false
}

func shorten(message string) string {
	return message[:min(len(message), maxMessage)]
}

// slimPod keeps of a Pod what condense, the index and the sum of requests need.
func slimPod(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	slim := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			OwnerReferences: pod.OwnerReferences,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, Overhead: podRequests(pod)},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: shorten(pod.Status.Message)},
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

// podRequests is what the scheduler reserves for a Pod.
func podRequests(pod *corev1.Pod) corev1.ResourceList {
	sum := pod.Spec.Overhead.DeepCopy()
	if sum == nil {
		sum = corev1.ResourceList{}
	}
	steady, peak := corev1.ResourceList{}, corev1.ResourceList{}
	for _, c := range pod.Spec.Containers {
		add(steady, c.Resources.Requests)
	}
	sidecars := corev1.ResourceList{}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(sidecars, c.Resources.Requests)
			continue
		}
		at := sidecars.DeepCopy()
		add(at, c.Resources.Requests)
		atLeast(peak, at)
	}
	add(steady, sidecars)
	atLeast(steady, peak)
	add(sum, steady)
	for name := range sum { // what is not counted in Clusters is not kept
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
			delete(sum, name)
		}
	}
	return sum
}

func add(sum, more corev1.ResourceList) {
	for name, q := range more {
		total := sum[name]
		total.Add(q)
		sum[name] = total
	}
}

func atLeast(most, other corev1.ResourceList) {
	for name, q := range other {
		if now, ok := most[name]; !ok || now.Cmp(q) < 0 {
			most[name] = q
		}
	}
}
