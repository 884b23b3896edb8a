// SPDX-License-Identifier: Apache-2.0

// Package podindex finds the Pods of each workload in a cluster, by their ownerReferences, and reports what
// state they are in and what blocks their deletion.
package podindex

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	toolscache "k8s.io/client-go/tools/cache"
	podresources "k8s.io/component-helpers/resource"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/informers"
)

// Bounds of a report on Pods.
const (
	maxBrokenPods   = 20
	maxMessageBytes = 256
	maxPodReasons   = 32
	// maxOwnerDepth bounds the number of owner references between a Pod and its workload: CronJob, Job, Pod
	// has 2.
	maxOwnerDepth = 5
)

// ownerUIDIndex indexes objects by the UID of their controller.
const ownerUIDIndex = "owner"

// Index finds the Pods of a workload by their ownerReferences.
type Index struct {
	// Pods are as TrimPod returns them, and have the Indexers.
	Pods toolscache.Indexer
	// Owners are the ReplicaSets, StatefulSets, DaemonSets and Jobs, in this order. They have the Indexers.
	Owners []toolscache.Indexer
}

// New makes an Index and its informers, which the caller starts. changed is called for each changed
// Pod or owner.
func New(list toolscache.ListerWatcher, meta metadata.Interface, changed func(metav1.Object, *Index)) (*Index, []toolscache.SharedIndexInformer, error) {
	indexers := Indexers()
	podInformer := toolscache.NewSharedIndexInformer(list, &corev1.Pod{}, 0, indexers)
	p := &Index{Pods: podInformer.GetIndexer()}
	onChange := func(o metav1.Object) { changed(o, p) }
	all := []toolscache.SharedIndexInformer{podInformer}
	if err := informers.Observe(podInformer, TrimPod, onChange); err != nil {
		return nil, nil, err
	}
	for _, gvr := range ownerKinds() {
		informer := metadatainformer.NewFilteredMetadataInformer(meta, gvr, metav1.NamespaceAll, 0, indexers, nil).Informer()
		if err := informers.Observe(informer, informers.TrimMetadata, onChange); err != nil {
			return nil, nil, err
		}
		p.Owners = append(p.Owners, informer.GetIndexer())
		all = append(all, informer)
	}
	return p, all, nil
}

// TrimPod keeps the fields of a Pod that an Index and the statistics of the cluster read. Its requests are in
// spec.overhead.
func TrimPod(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	trimmed := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			OwnerReferences: pod.OwnerReferences, Finalizers: pod.Finalizers,
			DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, Overhead: podRequests(pod)},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: truncate(pod.Status.Message)},
	}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			trimmed.Spec.Volumes = append(trimmed.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: v.PersistentVolumeClaim}})
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, c)
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if c.State.Waiting != nil {
			trimmed.Status.ContainerStatuses = append(trimmed.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: c.Name, State: corev1.ContainerState{Waiting: c.State.Waiting},
			})
		}
	}
	return trimmed, nil
}

// podRequests returns the CPU and memory that the scheduler reserves for a Pod.
func podRequests(pod *corev1.Pod) corev1.ResourceList {
	sum := podresources.PodRequests(pod, podresources.PodResourcesOptions{})
	maps.DeleteFunc(sum, func(name corev1.ResourceName, _ resource.Quantity) bool {
		return name != corev1.ResourceCPU && name != corev1.ResourceMemory
	})
	return sum
}

// ownerKinds are the resources that may own Pods on behalf of a workload.
func ownerKinds() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		appsv1.SchemeGroupVersion.WithResource("replicasets"),
		appsv1.SchemeGroupVersion.WithResource("statefulsets"),
		appsv1.SchemeGroupVersion.WithResource("daemonsets"),
		batchv1.SchemeGroupVersion.WithResource("jobs"),
	}
}

// Indexers are the index functions of an Index.
func Indexers() toolscache.Indexers { return toolscache.Indexers{ownerUIDIndex: indexByOwnerUID} }

// indexByOwnerUID is the index function of ownerUIDIndex.
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

// Associated counts the Pods of the object with that UID; nil without Pods.
func (p *Index) Associated(uid types.UID) *v1alpha1.Associated {
	if p == nil {
		return nil
	}
	a := &v1alpha1.Associated{}
	for _, pod := range p.PodsOf(uid) {
		reason, message, broken := podReason(pod)
		reason = truncate(reason)
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

// podReason returns a Pod's phase, or the reason why it waits or failed. broken is true if it failed or cannot
// start.
func podReason(pod *corev1.Pod) (reason, message string, broken bool) {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return w.Reason, truncate(w.Message), true
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.Reason, truncate(c.Message), true
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return cmp.Or(pod.Status.Reason, string(corev1.PodFailed)), truncate(pod.Status.Message), true
	}
	return string(pod.Status.Phase), "", false
}

// truncate cuts a text to at most maxMessageBytes, at the end of a character.
func truncate(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxMessageBytes)], "")
}

// mostFrequent keeps the most frequent reasons, and sums the others up as "Other".
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

// PodsOf returns the Pods of the object with that UID.
func (p *Index) PodsOf(uid types.UID) []*corev1.Pod {
	var all []*corev1.Pod
	p.visitDependents(uid, maxOwnerDepth, func(_ string, o metav1.Object) {
		if pod, ok := o.(*corev1.Pod); ok {
			all = append(all, pod)
		}
	})
	return all
}

// VolumeClaims returns the PersistentVolumeClaims that Pods of the object with that UID use, as
// namespace/name.
func (p *Index) VolumeClaims(uid types.UID) map[string]bool {
	found := map[string]bool{}
	for _, pod := range p.PodsOf(uid) {
		for _, v := range pod.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				found[pod.Namespace+"/"+v.PersistentVolumeClaim.ClaimName] = true
			}
		}
	}
	return found
}

// visitDependents calls visit for each Pod and owner below the object with that UID, with its plural kind.
func (p *Index) visitDependents(uid types.UID, depth int, visit func(plural string, o metav1.Object)) {
	if p == nil {
		return
	}
	found, _ := p.Pods.ByIndex(ownerUIDIndex, string(uid)) // fails only without the index
	for _, o := range found {
		if pod, ok := o.(metav1.Object); ok {
			visit("pods", pod)
		}
	}
	if depth == 0 {
		return
	}
	for i, owners := range p.Owners {
		children, _ := owners.ByIndex(ownerUIDIndex, string(uid))
		for _, o := range children {
			if child, ok := o.(metav1.Object); ok {
				visit(ownerKinds()[i].Resource, child)
				p.visitDependents(child.GetUID(), depth-1, visit)
			}
		}
	}
}

// BlockedDependent returns a Pod or owner below the object with that UID that is being deleted and blocked by
// finalizers, and these finalizers; "" for none. Of several it returns the first by name, so that reports
// do not change.
func (p *Index) BlockedDependent(uid types.UID, now time.Time) (name string, finalizers []string) {
	p.visitDependents(uid, maxOwnerDepth, func(plural string, o metav1.Object) {
		dependent, blocking := plural+" "+o.GetNamespace()+"/"+o.GetName(), BlockingFinalizers(o, now)
		blocking = slices.DeleteFunc(blocking, func(f string) bool { return f == batchv1.JobTrackingFinalizer }) // the Job controller's
		if len(blocking) > 0 && (name == "" || dependent < name) {
			name, finalizers = dependent, blocking
		}
	})
	return name, finalizers
}

// BlockingFinalizers returns the finalizers that block the deletion of an object. It returns none within the
// grace period, and never that of the garbage collector, which waits for Pods.
func BlockingFinalizers(o metav1.Object, now time.Time) []string {
	until, grace := o.GetDeletionTimestamp(), o.GetDeletionGracePeriodSeconds()
	if until == nil || grace != nil && *grace > 0 && now.Before(until.Time) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == metav1.FinalizerDeleteDependents })
}

// OwnerChain returns the UIDs of an object and its owners, up to one without an owner in the index.
func (p *Index) OwnerChain(o metav1.Object) []types.UID {
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

func (p *Index) findOwner(key string, uid types.UID) metav1.Object {
	for _, owners := range p.Owners {
		item, exists, err := owners.GetByKey(key)
		if object, ok := item.(metav1.Object); ok && exists && err == nil && object.GetUID() == uid {
			return object
		}
	}
	return nil
}
