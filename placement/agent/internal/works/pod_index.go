// SPDX-License-Identifier: Apache-2.0

package works

import (
	"cmp"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Bounds of what a report says of Pods.
const (
	maxBrokenPods   = 20
	maxMessageBytes = 256
	maxPodReasons   = 32
	// maxOwnerDepth bounds the walk from a Pod to its workload: CronJob, Job, Pod is 2.
	maxOwnerDepth = 5
)

// ownerUIDIndex indexes objects by the UID of the controller that made them.
const ownerUIDIndex = "owner"

// podIndex finds the Pods of a workload by their ownerReferences.
type podIndex struct {
	// pods and owners, in the order of ownerKinds, have the index byOwner.
	pods   cache.Indexer
	owners []cache.Indexer
}

// newPodIndex makes the caches that find Pods; run starts them. changed is called for the
// UIDs of a changed Pod or owner and of all that owns it.
func newPodIndex(list cache.ListerWatcher, meta metadata.Interface, changed func(metav1.Object, *podIndex)) (*podIndex, []cache.SharedIndexInformer, error) {
	indexers := cache.Indexers{ownerUIDIndex: indexByOwnerUID}
	podInformer := cache.NewSharedIndexInformer(list, &corev1.Pod{}, 0, indexers)
	p := &podIndex{pods: podInformer.GetIndexer()}
	note := func(o metav1.Object) { changed(o, p) }
	informers := []cache.SharedIndexInformer{podInformer}
	if err := observeInformer(podInformer, trimPod, note); err != nil {
		return nil, nil, err
	}
	for _, gvr := range ownerKinds() {
		informer := metadatainformer.NewFilteredMetadataInformer(meta, gvr, metav1.NamespaceAll, 0, indexers, nil).Informer()
		if err := observeInformer(informer, trimMetadata, note); err != nil {
			return nil, nil, err
		}
		p.owners = append(p.owners, informer.GetIndexer())
		informers = append(informers, informer)
	}
	return p, informers, nil
}

// ownerKinds are what may stand between a workload and its Pods.
func ownerKinds() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		appsv1.SchemeGroupVersion.WithResource("replicasets"),
		appsv1.SchemeGroupVersion.WithResource("statefulsets"),
		appsv1.SchemeGroupVersion.WithResource("daemonsets"),
		batchv1.SchemeGroupVersion.WithResource("jobs"),
	}
}

// indexByOwnerUID implements byOwner.
func indexByOwnerUID(o any) ([]string, error) {
	object, ok := o.(metav1.Object)
	if !ok {
		return nil, nil
	}
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
		return []string{string(owner.UID)}, nil
	}
	return nil, nil
}

// associated counts the Pods of the object with that UID.
func (p *podIndex) associated(uid types.UID) *v1alpha1.Associated {
	if p == nil {
		return nil
	}
	a := &v1alpha1.Associated{}
	for _, pod := range p.podsOf(uid) {
		reason, message, broken := podReason(pod)
		reason = truncateMessage(reason)
		if a.Pods == nil {
			a.Pods = map[string]int32{}
		}
		a.Pods[reason]++
		if broken {
			a.Broken = append(a.Broken, v1alpha1.BrokenPod{Name: pod.Name, Reason: reason, Message: message})
		}
	}
	slices.SortFunc(a.Broken, func(x, y v1alpha1.BrokenPod) int { return cmp.Compare(x.Name, y.Name) })
	a.Broken = a.Broken[:min(len(a.Broken), maxBrokenPods)]
	if len(a.Pods) == 0 {
		return nil
	}
	a.Pods = mostFrequent(a.Pods)
	return a
}

// podReason says how a Pod is in one word: its phase, or why it waits.
func podReason(pod *corev1.Pod) (reason, message string, broken bool) {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return w.Reason, truncateMessage(w.Message), true
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.Reason, truncateMessage(c.Message), true
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return cmp.Or(pod.Status.Reason, string(corev1.PodFailed)), truncateMessage(pod.Status.Message), true
	}
	return string(pod.Status.Phase), "", false
}

// mostFrequent keeps the reasons that most Pods have, and adds up the others.
func mostFrequent(pods map[string]int32) map[string]int32 {
	if len(pods) <= maxPodReasons {
		return pods
	}
	reasons := slices.SortedFunc(maps.Keys(pods), func(x, y string) int {
		return cmp.Or(cmp.Compare(pods[y], pods[x]), cmp.Compare(x, y))
	})
	kept := map[string]int32{}
	for i, reason := range reasons {
		if i >= maxPodReasons-1 {
			reason = "Other"
		}
		kept[reason] += pods[reasons[i]]
	}
	return kept
}

// podsOf finds the Pods that were made for the object with that UID.
func (p *podIndex) podsOf(uid types.UID) []*corev1.Pod {
	var all []*corev1.Pod
	p.visitDependents(uid, maxOwnerDepth, func(_ string, o metav1.Object) {
		if pod, ok := o.(*corev1.Pod); ok {
			all = append(all, pod)
		}
	})
	return all
}

// volumeClaims are the PersistentVolumeClaims that Pods of the object with that UID use, as namespace/name.
func (p *podIndex) volumeClaims(uid types.UID) map[string]bool {
	found := map[string]bool{}
	for _, pod := range p.podsOf(uid) {
		for _, v := range pod.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				found[pod.Namespace+"/"+v.PersistentVolumeClaim.ClaimName] = true
			}
		}
	}
	return found
}

// visitDependents calls note for all that was made for the object with that UID, with its resource.
func (p *podIndex) visitDependents(uid types.UID, depth int, note func(resource string, o metav1.Object)) {
	if p == nil {
		return
	}
	found, _ := p.pods.ByIndex(ownerUIDIndex, string(uid)) // fails only without the index
	for _, o := range found {
		if pod, ok := o.(metav1.Object); ok {
			note("pods", pod)
		}
	}
	if depth == 0 {
		return
	}
	for i, owners := range p.owners {
		children, _ := owners.ByIndex(ownerUIDIndex, string(uid))
		for _, o := range children {
			if child, ok := o.(metav1.Object); ok {
				note(ownerKinds()[i].Resource, child)
				p.visitDependents(child.GetUID(), depth-1, note)
			}
		}
	}
}

// blockedDependent names what was made for the object with that UID, is being deleted, and is held by finalizers,
// which come with it; "" for nothing. Of several it is the first by name, so that reports do not change.
func (p *podIndex) blockedDependent(uid types.UID, now time.Time) (name string, finalizers []string) {
	p.visitDependents(uid, maxOwnerDepth, func(resource string, o metav1.Object) {
		this, by := resource+" "+o.GetNamespace()+"/"+o.GetName(), blockingFinalizers(o, now)
		by = slices.DeleteFunc(by, func(f string) bool { return f == batchv1.JobTrackingFinalizer }) // the Job controller's
		if len(by) > 0 && (name == "" || this < name) {
			name, finalizers = this, by
		}
	})
	return name, finalizers
}

// blockingFinalizers returns the finalizers that keep an object which is being deleted. That of the garbage
// collector waits for Pods; and what is in its grace period stays in any case until it has ended.
func blockingFinalizers(o metav1.Object, now time.Time) []string {
	until, grace := o.GetDeletionTimestamp(), o.GetDeletionGracePeriodSeconds()
	if until == nil || grace != nil && *grace > 0 && now.Before(until.Time) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == metav1.FinalizerDeleteDependents })
}

// ownerChain are the UIDs from an object up to one that nothing here owns.
func (p *podIndex) ownerChain(o metav1.Object) []types.UID {
	uids := []types.UID{o.GetUID()}
	for range maxOwnerDepth {
		owner := metav1.GetControllerOfNoCopy(o)
		if owner == nil {
			break
		}
		uids = append(uids, owner.UID)
		if o = p.findOwner(o.GetNamespace()+"/"+owner.Name, owner.UID); o == nil {
			break
		}
	}
	return uids
}

func (p *podIndex) findOwner(key string, uid types.UID) metav1.Object {
	for _, owners := range p.owners {
		item, exists, err := owners.GetByKey(key)
		if object, ok := item.(metav1.Object); ok && exists && err == nil && object.GetUID() == uid {
			return object
		}
	}
	return nil
}
