// SPDX-License-Identifier: Apache-2.0

package works

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/room"
)

func resources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourcePods: resource.MustParse("10"),
	}
}

// trimmedNode is a ready node of 4 CPUs and 8 GiB, as trimNode returns it, after a change.
func trimmedNode(t *testing.T, name string, change func(*corev1.Node)) any {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Allocatable: resources("4", "8Gi"), Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	change(n)
	trimmed, err := trimNode(n)
	if err != nil {
		t.Fatal(err)
	}
	return trimmed
}

// trimmedPod is a Pod of 1 CPU and 1 GiB, as podindex.TrimPod returns it.
func trimmedPod(name, node string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Overhead: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

func TestFreeNodes(t *testing.T) {
	t.Parallel()
	same := func(*corev1.Node) {}
	refused := trimmedPod("refused", "", corev1.PodPending)
	refused.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	for name, tc := range map[string]struct {
		reason string
		node   func(*corev1.Node)
		pods   []any
		want   []room.Free
	}{
		"empty":     {"All of a ready node is free.", same, nil, []room.Free{{MilliCPU: 4000, Memory: 8 << 30, Pods: 10}}},
		"not ready": {"Nothing starts there.", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, nil, nil},
		"cordoned":  {"Nothing new comes.", func(n *corev1.Node) { n.Spec.Unschedulable = true }, nil, nil},
		"tainted": {"A Pod that tolerates the taint is an exception.", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}, nil, nil},
		"preferred": {"Pods still come where the taint is a preference.", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "spot", Effect: corev1.TaintEffectPreferNoSchedule}}
		}, nil, []room.Free{{MilliCPU: 4000, Memory: 8 << 30, Pods: 10}}},
		"used": {"Pods of all clients take room, until they have ended.", same, []any{
			trimmedPod("a", "n1", corev1.PodRunning), trimmedPod("b", "n1", corev1.PodPending), trimmedPod("c", "n1", corev1.PodSucceeded), trimmedPod("d", "elsewhere", corev1.PodRunning),
		}, []room.Free{{MilliCPU: 2000, Memory: 6 << 30, Pods: 8}}},
		"new Pod":     {"The scheduler is about to place it.", same, []any{trimmedPod("a", "", corev1.PodPending)}, []room.Free{{MilliCPU: 3000, Memory: 7 << 30, Pods: 9}}},
		"refused Pod": {"It fits nowhere, and takes no room.", same, []any{refused}, []room.Free{{MilliCPU: 4000, Memory: 8 << 30, Pods: 10}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := freeNodes([]any{trimmedNode(t, "n1", tc.node)}, tc.pods); fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("%s\ngot %+v, want %+v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestIsReportDue(t *testing.T) {
	t.Parallel()
	status := func(free, requested string, change ...func(*v1alpha1.ClusterStatus)) *v1alpha1.ClusterStatus {
		s := &v1alpha1.ClusterStatus{Allocatable: resources("100", "100Gi"), Requested: resources(requested, "1Gi")}
		s.Room = &v1alpha1.Room{Buckets: []v1alpha1.RoomBucket{{Nodes: 1, CPU: resource.MustParse(free), Memory: resource.MustParse("99Gi"), Pods: 10}}}
		for _, c := range change {
			c(s)
		}
		return s
	}
	for name, tc := range map[string]struct {
		reason     string
		last, next *v1alpha1.ClusterStatus
		age        time.Duration
		want       bool
	}{
		"first":        {"The hub knows nothing.", nil, status("40", "60"), 0, true},
		"same":         {"Nothing is to report, however old the report is.", status("40", "60"), status("40", "60"), time.Hour, false},
		"small":        {"A busy cluster does not write all the time.", status("40", "60"), status("39", "61"), smallChangeInterval - time.Second, false},
		"small, late":  {"Small changes are reported, too.", status("40", "60"), status("39", "61"), smallChangeInterval, true},
		"great":        {"A tenth of the room is gone.", status("40", "60"), status("36", "64"), 0, true},
		"first room":   {"The cluster was full.", status("0", "100"), status("1", "99"), 0, true},
		"a node less":  {"Allocatable resources changed by a tenth.", status("40", "60"), status("40", "60", func(s *v1alpha1.ClusterStatus) { s.Allocatable = resources("90", "90Gi") }), 0, true},
		"room is new":  {"The admin lets the agent report the room.", status("40", "60", func(s *v1alpha1.ClusterStatus) { s.Room = nil }), status("40", "60"), 0, true},
		"other fields": {"They do not change often, and matter at once.", status("40", "60"), status("40", "60", func(s *v1alpha1.ClusterStatus) { s.HubUID = "other" }), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := isReportDue(tc.last, tc.next, tc.age); got != tc.want {
				t.Errorf("%s\ngot %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}
