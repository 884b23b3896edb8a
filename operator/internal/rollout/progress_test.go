// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
)

var now = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// pod returns a Pod that is Running since an hour.
func pod(node, template string, change ...func(*corev1.Pod)) *corev1.Pod {
	began := metav1.NewTime(now.Add(-time.Hour))
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-" + node, CreationTimestamp: began, Annotations: map[string]string{render.TemplateAnnotation: template}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "patchbayd", Image: "patchbayd:" + template}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: &began,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: began}},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func notReady(since time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions[0] = corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-since))}
	}
}

func waiting(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		notReady(time.Second)(p)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "patchbayd", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "cause"}}}}
	}
}

// unnoticed is a Pod that no kubelet has seen.
func unnoticed(p *corev1.Pod) {
	p.Status = corev1.PodStatus{Phase: corev1.PodPending}
}

func ending(p *corev1.Pod) {
	end := metav1.NewTime(now)
	p.DeletionTimestamp = &end
}

func input(pods ...*corev1.Pod) *Input {
	return &Input{
		Part: &render.Part{Kind: "DaemonSet", Name: "patchbayd", Container: "patchbayd", Image: "patchbayd:new", Template: "new", Deadline: 5 * time.Minute, MaxUnavailable: intstr.FromInt32(3)},
		Pods: pods, Generation: 7, Now: now,
	}
}

func daemonSet(generation, observed int64, total int32) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Generation: generation},
		Status:     appsv1.DaemonSetStatus{ObservedGeneration: observed, DesiredNumberScheduled: total},
	}
}

func TestDaemonSetProgress(t *testing.T) {
	t.Parallel()
	ds := daemonSet(7, 7, 3)
	cases := map[string]struct {
		reason        string
		ds            *appsv1.DaemonSet
		pods          []*corev1.Pod
		want, message string
	}{
		"Ready":            {"all Pods have the template", ds, []*corev1.Pod{pod("a", "new"), pod("b", "new"), pod("c", "new")}, v1alpha1.ReasonReady, "3 of 3 nodes updated"},
		"Missing":          {"it was just applied", nil, nil, v1alpha1.ReasonProgressing, "DaemonSet patchbayd is not there yet"},
		"OldCache":         {"the cache has the DaemonSet before the write", daemonSet(6, 6, 3), []*corev1.Pod{pod("a", "new"), pod("b", "new"), pod("c", "new")}, v1alpha1.ReasonProgressing, "has not acted"},
		"OldStatus":        {"Kubernetes has not seen the write", daemonSet(7, 6, 3), []*corev1.Pod{pod("a", "new"), pod("b", "new"), pod("c", "new")}, v1alpha1.ReasonProgressing, "has not acted"},
		"Progressing":      {"two nodes are left", ds, []*corev1.Pod{pod("a", "new"), pod("b", "old"), pod("c", "old")}, v1alpha1.ReasonProgressing, "1 of 3 nodes updated"},
		"Starting":         {"a new Pod has time", ds, []*corev1.Pod{pod("a", "new", notReady(time.Minute)), pod("b", "old"), pod("c", "old")}, v1alpha1.ReasonProgressing, "1 of 3 nodes updated"},
		"Ending":           {"a Pod that ends is neither ready nor updated", ds, []*corev1.Pod{pod("a", "new", ending), pod("b", "new"), pod("c", "new")}, v1alpha1.ReasonProgressing, "2 of 3 nodes updated"},
		"ImagePull":        {"kubelet says that it cannot work", ds, []*corev1.Pod{pod("a", "new", waiting("ImagePullBackOff")), pod("b", "old")}, v1alpha1.ReasonRolloutStopped, "1 of 3 nodes updated; node a, Pod pod-a: container patchbayd: ImagePullBackOff: cause"},
		"Creating":         {"kubelet prepares the Pod", ds, []*corev1.Pod{pod("a", "new", waiting("ContainerCreating")), pod("b", "old")}, v1alpha1.ReasonProgressing, "1 of 3"},
		"Deadline":         {"it does not become ready", ds, []*corev1.Pod{pod("a", "new", notReady(6*time.Minute)), pod("b", "old")}, v1alpha1.ReasonRolloutStopped, "node a, Pod pod-a: not ready for 5m0s"},
		"OldPodFails":      {"a Pod of the template before is replaced", ds, []*corev1.Pod{pod("a", "old", waiting("CrashLoopBackOff")), pod("b", "new")}, v1alpha1.ReasonProgressing, "1 of 3"},
		"NotReady":         {"after the roll-out, a daemon fails", ds, []*corev1.Pod{pod("a", "new", waiting("CrashLoopBackOff")), pod("b", "new"), pod("c", "new")}, v1alpha1.ReasonNotReady, "CrashLoopBackOff"},
		"NotReadyYet":      {"no cause yet", ds, []*corev1.Pod{pod("a", "new", notReady(time.Minute)), pod("b", "new"), pod("c", "new")}, v1alpha1.ReasonNotReady, "3 of 3 nodes updated, 2 ready"},
		"MachineOff":       {"no kubelet has seen the Pod", ds, []*corev1.Pod{pod("a", "new", unnoticed), pod("b", "new"), pod("c", "old")}, v1alpha1.ReasonProgressing, "2 of 3"},
		"NoNodes":          {"nothing to run on", daemonSet(7, 7, 0), nil, v1alpha1.ReasonReady, "0 of 0 nodes updated"},
		"ManyFailures":     {"the message stays short", daemonSet(7, 7, 9), []*corev1.Pod{pod("a", "new", waiting("X")), pod("b", "new", waiting("X")), pod("c", "new", waiting("X")), pod("d", "new", waiting("X")), pod("e", "new", waiting("X"))}, v1alpha1.ReasonRolloutStopped, "; 2 more"},
		"PodOfNoTemplate":  {"kubectl has installed it", ds, []*corev1.Pod{pod("a", ""), pod("b", ""), pod("c", "")}, v1alpha1.ReasonProgressing, "0 of 3"},
		"FailedWithReason": {"the node evicted it", ds, []*corev1.Pod{pod("a", "new", notReady(time.Second), func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" }), pod("b", "old")}, v1alpha1.ReasonRolloutStopped, "Pod pod-a: Evicted"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := OfDaemonSet(input(tc.pods...), tc.ds)
			if got.Reason != tc.want || !strings.Contains(got.Message, tc.message) {
				t.Errorf("%s: got %s %q, want %s %q", tc.reason, got.Reason, got.Message, tc.want, tc.message)
			}
			if (got.Status == metav1.ConditionTrue) != (tc.want == v1alpha1.ReasonReady) {
				t.Errorf("%s: status %s", tc.reason, got.Status)
			}
		})
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		pods   []*corev1.Pod
		want   int
	}{
		"First":        {"no node has shown that the template works", []*corev1.Pod{pod("a", "old"), pod("b", "old"), pod("c", "old"), pod("d", "old")}, 1},
		"Starting":     {"the first one is not ready yet", []*corev1.Pod{pod("a", "new", notReady(time.Second)), pod("b", "old"), pod("c", "old"), pod("d", "old")}, 1},
		"JustCreated":  {"its kubelet has not answered yet", []*corev1.Pod{pod("a", "new", unnoticed, func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now) }), pod("b", "old")}, 1},
		"FirstIsReady": {"the others may follow", []*corev1.Pod{pod("a", "new"), pod("b", "old"), pod("c", "old"), pod("d", "old")}, 3},
		"LaterFailure": {"no more nodes after one that fails", []*corev1.Pod{pod("a", "new"), pod("b", "new", waiting("CrashLoopBackOff")), pod("c", "old"), pod("d", "old")}, 1},
		"MachineOff":   {"a machine that is off must not stop the first node", []*corev1.Pod{pod("a", "new", unnoticed), pod("b", "old"), pod("c", "old"), pod("d", "old")}, 2},
		"ManyOff":      {"as many machines as there are", []*corev1.Pod{pod("a", "new", unnoticed), pod("b", "new", unnoticed), pod("c", "new", unnoticed), pod("d", "new", unnoticed), pod("e", "old")}, 5},
		"OffLater":     {"it is not one of those that may be without a daemon", []*corev1.Pod{pod("a", "new"), pod("b", "new", unnoticed), pod("c", "old")}, 4},
		"EndsNever":    {"Kubernetes deletes the old Pod first, and no kubelet ends it", []*corev1.Pod{pod("a", "old", ending, func(p *corev1.Pod) { p.DeletionTimestamp.Time = now.Add(-2 * time.Minute) }), pod("b", "old")}, 2},
		"Ending":       {"a Pod that ends shows nothing", []*corev1.Pod{pod("a", "new", ending), pod("b", "old")}, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Limit(input(tc.pods...)); got.IntValue() != tc.want {
				t.Errorf("%s: got %s, want %d", tc.reason, got.String(), tc.want)
			}
		})
	}
}

func TestDeploymentProgress(t *testing.T) {
	t.Parallel()
	two := int32(2)
	deployment := func(change func(*appsv1.DeploymentStatus)) *appsv1.Deployment {
		d := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Generation: 7}, Spec: appsv1.DeploymentSpec{Replicas: &two},
			Status: appsv1.DeploymentStatus{ObservedGeneration: 7, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2},
		}
		change(&d.Status)
		return d
	}
	cases := map[string]struct {
		reason        string
		d             *appsv1.Deployment
		want, message string
	}{
		"Ready":     {"both run", deployment(func(*appsv1.DeploymentStatus) {}), v1alpha1.ReasonReady, "2 of 2 Pods updated"},
		"Missing":   {"it was just applied", nil, v1alpha1.ReasonProgressing, "is not there yet"},
		"OldStatus": {"Kubernetes has not seen the write", deployment(func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = 6 }), v1alpha1.ReasonProgressing, "has not acted"},
		"Surge":     {"an old Pod is left", deployment(func(s *appsv1.DeploymentStatus) { s.Replicas = 3 }), v1alpha1.ReasonProgressing, "2 of 2 Pods"},
		"NotReady":  {"one has no room on a cluster of one node", deployment(func(s *appsv1.DeploymentStatus) { s.ReadyReplicas = 1 }), v1alpha1.ReasonNotReady, "1 ready"},
		"Deadline": {"Kubernetes reports no progress", deployment(func(s *appsv1.DeploymentStatus) {
			s.UpdatedReplicas = 1
			s.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Message: "timed out progressing"}}
		}), v1alpha1.ReasonRolloutStopped, "1 of 2 Pods updated; timed out progressing"},
		"Quota": {"no Pod can be created", deployment(func(s *appsv1.DeploymentStatus) {
			s.UpdatedReplicas = 0
			s.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota"}}
		}), v1alpha1.ReasonRolloutStopped, "exceeded quota"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := OfDeployment(input(), tc.d)
			if got.Reason != tc.want || !strings.Contains(got.Message, tc.message) {
				t.Errorf("%s: got %s %q, want %s %q", tc.reason, got.Reason, got.Message, tc.want, tc.message)
			}
		})
	}
}

func TestOutdated(t *testing.T) {
	t.Parallel()
	evicted := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	got := Outdated(input(pod("a", "new"), pod("b", "old"), pod("c", "old", ending), pod("d", "old", evicted)))
	if got != 2 {
		t.Errorf("got %d, want 2: a Pod that ends may still run, an evicted one does not", got)
	}
}

// The time at which a Pod passes its deadline needs a new look, because no event reports it.
func TestRecheck(t *testing.T) {
	t.Parallel()
	got := OfDaemonSet(input(pod("a", "new", notReady(time.Minute)), pod("b", "new", notReady(2*time.Minute)), pod("c", "old")), daemonSet(7, 7, 3))
	if got.Recheck != 3*time.Minute {
		t.Errorf("got %s, want 3m", got.Recheck)
	}
	got = OfDaemonSet(input(pod("a", "new", notReady(time.Minute)), pod("b", "old", ending)), daemonSet(7, 7, 2))
	if got.Recheck != kubeletTimeout {
		t.Errorf("got %s, want the time in which kubelet ends a Pod", got.Recheck)
	}
}
