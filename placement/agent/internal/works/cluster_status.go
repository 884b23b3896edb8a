// SPDX-License-Identifier: Apache-2.0

package works

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/room"
)

const (
	// clusterReportInterval is how often the agent compares the cluster's status with its last report.
	clusterReportInterval = 5 * time.Second
	// smallChangeInterval is after how long the agent reports changes of less than 10 percent.
	smallChangeInterval = time.Minute
	// roomRetryInterval is after how long the agent reports the room again to a hub that does not know it.
	roomRetryInterval = 5 * time.Minute
)

// clusterStats computes the agent's part of the Cluster's status from the caches.
type clusterStats struct {
	nodes, pods toolscache.Store
	versions    v1alpha1.Versions
	halted      *haltedWorks
	cluster     string
	hideRoom    bool
}

// status computes the agent's part of the Cluster's status.
func (f *clusterStats) status(hubUID string) v1alpha1.ClusterStatus {
	allocatable, requested := corev1.ResourceList{}, corev1.ResourceList{}
	for _, o := range f.nodes.List() {
		if node, ok := o.(*corev1.Node); ok && node.Status.Phase == corev1.NodeRunning { // see trimNode
			addResources(allocatable, node.Status.Allocatable)
		}
	}
	for _, o := range f.pods.List() {
		if pod, ok := o.(*corev1.Pod); ok && pod.Spec.NodeName != "" &&
			pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			addResources(requested, pod.Spec.Overhead) // see podindex.TrimPod
		}
	}
	mismatched := newCondition(v1alpha1.ConditionHubMismatch, false, v1alpha1.ReasonAsExpected, "")
	if name, all := f.halted.first(); all > 0 {
		mismatched = newCondition(v1alpha1.ConditionHubMismatch, true, v1alpha1.ReasonHubMismatch, fmt.Sprintf(
			"%d Works, such as %s, do not match this cluster's records: the hub was restored, or is another one. The objects of this cluster "+
				"stay as they are, and the agent removes nothing. Run at the hub: kubectl patchbay hub resume --for-cluster %s", all, name, f.cluster))
	}
	versions := f.versions
	status := v1alpha1.ClusterStatus{
		Allocatable: allocatable, Requested: requested, Versions: &versions, HubUID: hubUID,
		Conditions: []metav1.Condition{mismatched},
	}
	if !f.hideRoom {
		status.Room = room.New(freeNodes(f.nodes.List(), f.pods.List())).ToAPI()
	}
	return status
}

// nodeRoom is what a node has free.
type nodeRoom struct {
	name string
	free room.Free
}

// freeNodes returns what the nodes have free that may get any Pod, by the names of the nodes. Nodes and Pods are as
// trimNode and podindex.TrimPod return them. Pods that the scheduler has not seen yet go to the first node with room.
func freeNodes(nodes, pods []any) []room.Free {
	byName := map[string]*nodeRoom{}
	var all []*nodeRoom
	for _, o := range nodes {
		node, ok := o.(*corev1.Node)
		if !ok || node.Status.Phase != corev1.NodeRunning || len(node.Spec.Taints) > 0 {
			continue
		}
		list := node.Status.Allocatable
		n := &nodeRoom{name: node.Name, free: room.Free{MilliCPU: list.Cpu().MilliValue(), Memory: list.Memory().Value(), Pods: list.Pods().Value()}}
		byName[node.Name], all = n, append(all, n)
	}
	slices.SortFunc(all, func(a, b *nodeRoom) int { return cmp.Compare(a.name, b.name) })
	var unbound []*corev1.Pod
	for _, o := range pods {
		pod, ok := o.(*corev1.Pod)
		switch {
		case !ok || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		case pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Status.Conditions) == 0: // else it is refused, or gated
			unbound = append(unbound, pod)
		case byName[pod.Spec.NodeName] != nil:
			n := byName[pod.Spec.NodeName]
			n.free = n.free.Without(requestsOf(pod), 1)
		}
	}
	slices.SortFunc(unbound, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, pod := range unbound {
		r := requestsOf(pod)
		if i := slices.IndexFunc(all, func(n *nodeRoom) bool { return n.free.Fit(r) > 0 }); i >= 0 {
			all[i].free = all[i].free.Without(r, 1)
		}
	}
	free := make([]room.Free, 0, len(all))
	for _, n := range all {
		free = append(free, n.free)
	}
	return free
}

// requestsOf returns the requests of a Pod, as podindex.TrimPod keeps them.
func requestsOf(pod *corev1.Pod) room.Requests {
	return room.Requests{MilliCPU: pod.Spec.Overhead.Cpu().MilliValue(), Memory: pod.Spec.Overhead.Memory().Value()}
}

func addResources(sum, more corev1.ResourceList) {
	for name, q := range more {
		total := sum[name]
		total.Add(q)
		sum[name] = total
	}
}

// clusterReporter applies the Cluster's status at the hub when it has changed.
type clusterReporter struct {
	hub      client.Client
	name     string
	now      func() time.Time
	lastSent *v1alpha1.ClusterStatus
	sentAt   time.Time
	// noRoomUntil is when to report the room again to a hub that does not know it: it may be upgraded.
	noRoomUntil time.Time
}

// send applies the status, unless it is the one that was sent last, or differs little and for a short time.
func (r *clusterReporter) send(ctx context.Context, status v1alpha1.ClusterStatus) error {
	var before []metav1.Condition
	if r.lastSent != nil {
		before = r.lastSent.Conditions
	}
	status.Conditions = mergeConditions(before, status.Conditions)
	if r.now().Before(r.noRoomUntil) {
		status.Room = nil
	}
	if !isReportDue(r.lastSent, &status, r.now().Sub(r.sentAt)) {
		return nil
	}
	err := r.apply(ctx, status)
	if err != nil && status.Room != nil && strings.Contains(err.Error(), "field not declared in schema") { // a hub of an earlier version
		status.Room, r.noRoomUntil = nil, r.now().Add(roomRetryInterval)
		err = r.apply(ctx, status)
	}
	if err != nil {
		return fmt.Errorf("report on Cluster %s: %w", r.name, err)
	}
	r.lastSent, r.sentAt = &status, r.now()
	return nil
}

// isReportDue tells whether to send a status after the last one, which was sent so long ago.
func isReportDue(last, next *v1alpha1.ClusterStatus, age time.Duration) bool {
	switch {
	case last == nil:
		return true
	case equality.Semantic.DeepEqual(last, next):
		return false
	case age >= smallChangeInterval, changedResources(last.Allocatable, next.Allocatable, last.Allocatable),
		changedResources(last.Requested, next.Requested, last.Allocatable), changedRoom(last.Room, next.Room):
		return true
	}
	facts := func(s *v1alpha1.ClusterStatus) v1alpha1.ClusterStatus {
		return v1alpha1.ClusterStatus{Conditions: s.Conditions, Versions: s.Versions, HubUID: s.HubUID}
	}
	return !equality.Semantic.DeepEqual(facts(last), facts(next))
}

// changedResources tells whether a resource has changed by 10 percent of what there is of it.
func changedResources(last, next, all corev1.ResourceList) bool {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		before, now, whole := last[name], next[name], all[name]
		if isGreatChange(before.AsApproximateFloat64(), now.AsApproximateFloat64(), whole.AsApproximateFloat64()) {
			return true
		}
	}
	return false
}

// changedRoom tells whether what is free, in all or at most on one node, has changed by 10 percent.
func changedRoom(last, next *v1alpha1.Room) bool {
	if last == nil || next == nil {
		return last != next
	}
	before, now := roomMeasures(room.FromAPI(last)), roomMeasures(room.FromAPI(next))
	for i := range before {
		if isGreatChange(before[i], now[i], before[i]) {
			return true
		}
	}
	return false
}

// roomMeasures returns the sums and the greatest values of what nodes have free.
func roomMeasures(h room.Histogram) [6]float64 {
	var m [6]float64
	for _, b := range h {
		for i, v := range []int64{b.Free.MilliCPU, b.Free.Memory, b.Free.Pods} {
			m[i] += float64(b.Nodes) * float64(v)
			m[3+i] = max(m[3+i], float64(v))
		}
	}
	return m
}

func isGreatChange(before, now, whole float64) bool {
	return before != now && math.Abs(now-before) >= whole/10
}

func (r *clusterReporter) apply(ctx context.Context, status v1alpha1.ClusterStatus) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion().WithKind("Cluster"))
	o.SetName(r.name)
	return r.hub.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(v1alpha1.AgentFieldManager), client.ForceOwnership)
}
