// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
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

// readySince is a Pod that became ready some time ago.
func readySince(since time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-since))
	}
}

// restarted is a Pod that is ready again after a container has ended.
func restarted(ago time.Duration, code int32, reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		end := &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, FinishedAt: metav1.NewTime(now.Add(-ago))}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "patchbayd", RestartCount: 7, LastTerminationState: corev1.ContainerState{Terminated: end}}}
	}
}

// unreachable is a Pod on a machine that went off.
func unreachable(since time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		notReady(since)(p)
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue})
	}
}

// over is a Pod that has failed.
func over(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }

func ending(p *corev1.Pod) {
	end := metav1.NewTime(now)
	p.DeletionTimestamp = &end
}

func input(pods ...*corev1.Pod) *Input {
	return &Input{
		Part: &render.Part{Kind: "DaemonSet", Name: "patchbayd", Container: "patchbayd", Image: "patchbayd:new", Template: "new", Deadline: 5 * time.Minute, MinReady: 30 * time.Second, MaxUnavailable: intstr.FromInt32(3)},
		Pods: pods, Generation: 7, Now: now,
	}
}

// daemonSet returns a DaemonSet whose controller counts all nodes as updated and ready.
func daemonSet(generation, observed int64, total int32) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Generation: generation},
		Status:     appsv1.DaemonSetStatus{ObservedGeneration: observed, DesiredNumberScheduled: total, UpdatedNumberScheduled: total, NumberReady: total},
	}
}

func TestDaemonSetProgress(t *testing.T) {
	t.Parallel()
	ds, misscheduled := daemonSet(7, 7, 3), daemonSet(7, 7, 3)
	misscheduled.Status.NumberReady = 2
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
		"Deadline":         {"it does not become ready", ds, []*corev1.Pod{pod("a", "new", notReady(6*time.Minute)), pod("b", "old")}, v1alpha1.ReasonRolloutStopped, "node a, Pod pod-a: not ready for 5m0s: see the log of the Pod"},
		"OldPodFails":      {"a Pod of the template before is replaced", ds, []*corev1.Pod{pod("a", "old", waiting("CrashLoopBackOff")), pod("b", "new")}, v1alpha1.ReasonProgressing, "1 of 3"},
		"NotReady":         {"after the roll-out, a daemon fails", ds, []*corev1.Pod{pod("a", "new", waiting("CrashLoopBackOff")), pod("b", "new"), pod("c", "new")}, v1alpha1.ReasonNotReady, "CrashLoopBackOff"},
		"NotReadyYet":      {"the Pods of each change need some seconds", ds, []*corev1.Pod{pod("a", "new", notReady(time.Minute)), pod("b", "new"), pod("c", "new")}, v1alpha1.ReasonProgressing, "3 of 3 nodes updated, 2 ready"},
		"NotReadyInTime":   {"it does not become ready", ds, []*corev1.Pod{pod("a", "new", notReady(6*time.Minute)), pod("b", "new"), pod("c", "new")}, v1alpha1.ReasonNotReady, "node a, Pod pod-a: not ready for 5m0s: see the log of the Pod"},
		"Misscheduled":     {"a Pod on a node that has a taint since then is not one of those that must be ready", misscheduled, []*corev1.Pod{pod("a", "new", notReady(time.Minute)), pod("b", "new"), pod("c", "new"), pod("tainted", "new")}, v1alpha1.ReasonProgressing, "3 of 3 nodes updated, 2 ready"},
		"Restarted":        {"it is ready between two crashes", ds, []*corev1.Pod{pod("a", "new", restarted(time.Minute, 2, "Error")), pod("b", "old"), pod("c", "old")}, v1alpha1.ReasonRolloutStopped, "node a, Pod pod-a: container patchbayd has ended with exit code 2: Error, and was restarted"},
		"RestartedBefore":  {"it works since then", ds, []*corev1.Pod{pod("a", "new", restarted(6*time.Minute, 2, "Error")), pod("b", "old"), pod("c", "old")}, v1alpha1.ReasonProgressing, "1 of 3"},
		"RestartedMachine": {"the machine has restarted, not the daemon alone", ds, []*corev1.Pod{pod("a", "new", restarted(time.Minute, 255, "Unknown")), pod("b", "old"), pod("c", "old")}, v1alpha1.ReasonProgressing, "1 of 3"},
		"RestartedLater":   {"there is no roll-out that a crash could stop", ds, []*corev1.Pod{pod("a", "new", restarted(time.Minute, 2, "Error")), pod("b", "new"), pod("c", "new")}, v1alpha1.ReasonReady, "3 of 3"},
		"OffAfterUpdate":   {"the machine is no failure of the template", ds, []*corev1.Pod{pod("a", "new", unreachable(time.Hour)), pod("b", "new"), pod("c", "old")}, v1alpha1.ReasonProgressing, "2 of 3 nodes updated"},
		"OffAtTheEnd":      {"the other nodes are updated", ds, []*corev1.Pod{pod("a", "new", unreachable(time.Hour)), pod("b", "new"), pod("c", "new")}, v1alpha1.ReasonNotReady, "3 of 3 nodes updated; node a, Pod pod-a: the node does not answer"},
		"MachineOff":       {"no kubelet has seen the Pod", ds, []*corev1.Pod{pod("a", "new", unnoticed), pod("b", "new"), pod("c", "old")}, v1alpha1.ReasonProgressing, "2 of 3"},
		"NoNodes":          {"Kubernetes has removed the daemon from all nodes", daemonSet(7, 7, 0), nil, v1alpha1.ReasonNotReady, "no node matches nodeSelector"},
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
		"First":            {"no node has shown that the template works", []*corev1.Pod{pod("a", "old"), pod("b", "old"), pod("c", "old"), pod("d", "old")}, 1},
		"Starting":         {"the first one is not ready yet", []*corev1.Pod{pod("a", "new", notReady(time.Second)), pod("b", "old"), pod("c", "old"), pod("d", "old")}, 1},
		"JustCreated":      {"its kubelet has not answered yet", []*corev1.Pod{pod("a", "new", unnoticed, func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now) }), pod("b", "old")}, 1},
		"FirstIsReady":     {"the others may follow", []*corev1.Pod{pod("a", "new"), pod("b", "old"), pod("c", "old"), pod("d", "old")}, 3},
		"LaterFailure":     {"no more nodes after one that fails", []*corev1.Pod{pod("a", "new"), pod("b", "new", waiting("CrashLoopBackOff")), pod("c", "old"), pod("d", "old")}, 1},
		"MachineOff":       {"a machine that is off must not stop the first node", []*corev1.Pod{pod("a", "new", unnoticed), pod("b", "old"), pod("c", "old"), pod("d", "old")}, 2},
		"ManyOff":          {"as many machines as there are", []*corev1.Pod{pod("a", "new", unnoticed), pod("b", "new", unnoticed), pod("c", "new", unnoticed), pod("d", "new", unnoticed), pod("e", "old")}, 5},
		"OffLater":         {"it is not one of those that may be without a daemon", []*corev1.Pod{pod("a", "new"), pod("b", "new", unnoticed), pod("c", "old")}, 4},
		"EndsNever":        {"Kubernetes deletes the old Pod first, and no kubelet ends it", []*corev1.Pod{pod("a", "old", ending, func(p *corev1.Pod) { p.DeletionTimestamp.Time = now.Add(-2 * time.Minute) }), pod("b", "old")}, 2},
		"Ending":           {"a Pod that ends shows nothing", []*corev1.Pod{pod("a", "new", ending), pod("b", "old")}, 1},
		"ReadyForASecond":  {"it may crash as soon as it is used", []*corev1.Pod{pod("a", "new", readySince(time.Second)), pod("b", "old"), pod("c", "old"), pod("d", "old")}, 1},
		"ReadyForLonger":   {"it works", []*corev1.Pod{pod("a", "new", readySince(30*time.Second)), pod("b", "old"), pod("c", "old"), pod("d", "old")}, 3},
		"Restarted":        {"it is ready between two crashes", []*corev1.Pod{pod("a", "new", restarted(time.Minute, 2, "Error")), pod("b", "old"), pod("c", "old"), pod("d", "old")}, 1},
		"SecondRestarted":  {"one node shows that the template works, and another one that it does not", []*corev1.Pod{pod("a", "new"), pod("b", "new", restarted(time.Minute, 0, "Completed")), pod("c", "old"), pod("d", "old")}, 1},
		"OffAfterUpdate":   {"a machine that went off after its update must not stop the others", []*corev1.Pod{pod("a", "new"), pod("b", "new", unreachable(time.Hour)), pod("c", "old"), pod("d", "old")}, 4},
		"OffForASecond":    {"it may be back at once", []*corev1.Pod{pod("a", "new"), pod("b", "new", unreachable(time.Second)), pod("c", "old"), pod("d", "old")}, 3},
		"EndsNeverAndOver": {"Kubernetes does not count a Pod that has failed", []*corev1.Pod{pod("a", "old", over, ending, func(p *corev1.Pod) { p.DeletionTimestamp.Time = now.Add(-2 * time.Minute) }), pod("b", "old")}, 1},
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

func TestUnsettled(t *testing.T) {
	t.Parallel()
	created := func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now) }
	cases := map[string]struct {
		reason string
		pods   []*corev1.Pod
		want   []string
	}{
		"Available":     {"the limit holds for them", []*corev1.Pod{pod("a", "old"), pod("b", "old", readySince(35*time.Second))}, nil},
		"ReadyJustNow":  {"Kubernetes counts them as not available, and replaces all of them", []*corev1.Pod{pod("b", "old", readySince(34*time.Second)), pod("a", "old", readySince(time.Second)), pod("c", "old")}, []string{"a", "b"}},
		"Starting":      {"they may be ready in a moment", []*corev1.Pod{pod("a", "old", notReady(time.Second)), pod("b", "old", unnoticed, created), pod("c", "old")}, []string{"a", "b"}},
		"NoneIsReady":   {"a correction of the first installation must not wait", []*corev1.Pod{pod("a", "old", notReady(time.Second)), pod("b", "old", unnoticed, created)}, nil},
		"Ending":        {"the next Pod on the node has the new template", []*corev1.Pod{pod("a", "old", ending), pod("b", "old", ending), pod("b", "new", readySince(time.Second)), pod("c", "old")}, []string{"a", "b"}},
		"Failing":       {"the new template is to repair them", []*corev1.Pod{pod("a", "old", waiting("ImagePullBackOff")), pod("b", "old", readySince(time.Second), restarted(time.Second, 2, "Error"))}, nil},
		"PastDeadline":  {"they do not become ready", []*corev1.Pod{pod("a", "old", notReady(time.Hour)), pod("b", "old", notReady(time.Hour))}, nil},
		"MachineOff":    {"nothing is known of them", []*corev1.Pod{pod("a", "old", unnoticed), pod("b", "old", unreachable(time.Hour))}, nil},
		"Over":          {"nothing of them runs", []*corev1.Pod{pod("a", "old", over), pod("b", "old", over)}, nil},
		"OfAnyTemplate": {"a roll-out may be under way", []*corev1.Pod{pod("a", "new", readySince(time.Second)), pod("b", "old", readySince(time.Second))}, []string{"a", "b"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Unsettled(input(tc.pods...)); !slices.Equal(got, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
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
		"Starting":  {"its Pods need some seconds", deployment(func(s *appsv1.DeploymentStatus) { s.ReadyReplicas = 1 }), v1alpha1.ReasonProgressing, "2 of 2 Pods updated, 1 ready"},
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

// A Pod that has no room is reported after the deadline.
func TestPodWithoutRoom(t *testing.T) {
	t.Parallel()
	two := int32(2)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Generation: 7}, Spec: appsv1.DeploymentSpec{Replicas: &two},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 7, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 1},
	}
	noRoom := pod("", "new", unnoticed, func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available"}}
	})
	got := OfDeployment(input(pod("a", "new"), noRoom), d)
	if got.Reason != v1alpha1.ReasonNotReady || !strings.Contains(got.Message, "Unschedulable: 0/1 nodes are available") {
		t.Errorf("got %s %q", got.Reason, got.Message)
	}
}

// Nodes on which Kubernetes creates no Pod stop the roll-out after the deadline, which begins when the first pass sees
// them.
func TestMissingPods(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason       string
		pods         []*corev1.Pod
		since        time.Time
		want         string
		wantSince    time.Time
		recheck      time.Duration
		wantNodeLeft int
	}{
		"JustNow": {"the next Pod is created within seconds", []*corev1.Pod{pod("a", "new"), pod("b", "old"), pod("c", "old")}, time.Time{}, v1alpha1.ReasonProgressing, now, 5 * time.Minute, 3},
		"InTime":  {"as long as a Pod may take", []*corev1.Pod{pod("a", "new"), pod("b", "old"), pod("c", "old")}, now.Add(-time.Minute), v1alpha1.ReasonProgressing, now.Add(-time.Minute), 4 * time.Minute, 3},
		"Late":    {"such as a ServiceAccount that does not exist", []*corev1.Pod{pod("a", "new"), pod("b", "old"), pod("c", "old")}, now.Add(-5 * time.Minute), v1alpha1.ReasonRolloutStopped, now.Add(-5 * time.Minute), 0, 1},
		"Over":    {"what runs no more is no daemon", []*corev1.Pod{pod("a", "new"), pod("b", "old"), pod("c", "old"), pod("d", "old", over)}, time.Time{}, v1alpha1.ReasonProgressing, now, 5 * time.Minute, 3},
		"Ending":  {"it is followed by another one", []*corev1.Pod{pod("a", "new"), pod("b", "old"), pod("c", "old"), pod("d", "old", ending)}, now.Add(-time.Hour), v1alpha1.ReasonProgressing, time.Time{}, time.Second, 1},
		"None":    {"the time begins again", []*corev1.Pod{pod("a", "new"), pod("b", "old"), pod("c", "old"), pod("d", "old")}, now.Add(-time.Minute), v1alpha1.ReasonProgressing, time.Time{}, 0, 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input(tc.pods...)
			in.MissingSince = tc.since
			got := OfDaemonSet(in, daemonSet(7, 7, 4))
			if got.Reason != tc.want || !got.MissingSince.Equal(tc.wantSince) || got.Recheck != tc.recheck {
				t.Errorf("%s: got %+v, want %s since %s, again in %s", tc.reason, got, tc.want, tc.wantSince, tc.recheck)
			}
			if tc.want == v1alpha1.ReasonRolloutStopped && !strings.Contains(got.Message, "creates no Pod on 1 nodes: see the Events of DaemonSet patchbayd") {
				t.Errorf("%s: message %q", tc.reason, got.Message)
			}
			if limit := Limit(in); limit.IntValue() != tc.wantNodeLeft {
				t.Errorf("%s: limit %s, want %d", tc.reason, limit.String(), tc.wantNodeLeft)
			}
		})
	}
}

func TestOutdated(t *testing.T) {
	t.Parallel()
	mirrored := func(p *corev1.Pod) {
		p.Annotations[render.ImageAnnotation], p.Spec.Containers[0].Image = "patchbayd:new", "mirror.example/patchbayd:new"
	}
	older := func(p *corev1.Pod) { mirrored(p); p.Annotations[render.ImageAnnotation] = "patchbayd:old" }
	got := Outdated(input(pod("a", "new"), pod("c", "old", ending), pod("b", "old"), pod("d", "old", over), pod("e", "new", mirrored), pod("f", "new", older)))
	if !slices.Equal(got, []string{"b", "c", "f"}) {
		t.Errorf("got %v, want b, c and f: a Pod that ends may still run, an evicted one does not, and admission may rewrite an image", got)
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
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   time.Duration
	}{
		"Proven":      {readySince(10 * time.Second), 20 * time.Second},
		"Restarted":   {restarted(time.Minute, 2, "Error"), 4 * time.Minute},
		"Unreachable": {unreachable(20 * time.Second), 40 * time.Second},
	} {
		if got := OfDaemonSet(input(pod("a", "new", tc.change), pod("b", "old")), daemonSet(7, 7, 2)); got.Recheck != tc.want {
			t.Errorf("%s: got %s, want %s", name, got.Recheck, tc.want)
		}
	}
}
