// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"maps"
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
	maxReasons = 32
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
		reason = shorten(reason)
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
	a.Pods = mostFrequent(a.Pods)
	return a
}

// mostFrequent keeps the reasons that most Pods have, and adds up the others.
func mostFrequent(pods map[string]int32) map[string]int32 {
	if len(pods) <= maxReasons {
		return pods
	}
	reasons := slices.SortedFunc(maps.Keys(pods), func(x, y string) int {
		return cmp.Or(cmp.Compare(pods[y], pods[x]), cmp.Compare(x, y))
	})
	kept := map[string]int32{}
	for i, reason := range reasons {
		if i >= maxReasons-1 {
			reason = "Other"
		}
		kept[reason] += pods[reasons[i]]
	}
	return kept
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

// roots are the UIDs from an object up to one that nothing here owns.
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
