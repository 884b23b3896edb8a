// SPDX-License-Identifier: Apache-2.0

package podindex

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

func waiting(reason, message string) []corev1.ContainerStatus {
	return []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
}

func TestPodReason(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		why    string
		status corev1.PodStatus
		reason string
		broken bool
	}{
		"Running":  {"A running Pod has its phase.", corev1.PodStatus{Phase: corev1.PodRunning}, "Running", false},
		"Creating": {"A Pod whose containers are being created is not broken.", corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: waiting("ContainerCreating", "")}, "Pending", false},
		"Crashing": {"A waiting container has a reason.", corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: waiting("CrashLoopBackOff", "m")}, "CrashLoopBackOff", true},
		"Init":     {"A waiting init container has a reason.", corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: waiting("ErrImagePull", "m")}, "ErrImagePull", true},
		"Unschedulable": {"No node has room.", corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3"},
		}}, "Unschedulable", true},
		"Evicted": {"A failed Pod may have a reason.", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}, "Evicted", true},
		"Failed":  {"A failed Pod may have no reason.", corev1.PodStatus{Phase: corev1.PodFailed}, "Failed", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trimmed, err := TrimPod(&corev1.Pod{Status: tc.status})
			if err != nil {
				t.Fatal(err)
			}
			cached, ok := trimmed.(*corev1.Pod)
			if !ok {
				t.Fatalf("got %T", trimmed)
			}
			for _, pod := range []*corev1.Pod{{Status: tc.status}, cached} {
				if reason, _, broken := podReason(pod); reason != tc.reason || broken != tc.broken {
					t.Errorf("%s\ngot %s, broken %t; want %s, %t", tc.why, reason, broken, tc.reason, tc.broken)
				}
			}
		})
	}
}

func child(name, owner string) metav1.ObjectMeta {
	yes := true
	return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), OwnerReferences: []metav1.OwnerReference{
		{Name: owner, UID: types.UID(owner), Controller: &yes},
	}}
}

// An Index finds the Pods of a workload over several levels of owners.
func TestPodsBelow(t *testing.T) {
	t.Parallel()
	index := func() toolscache.Indexer { return toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, Indexers()) }
	p := &Index{Pods: index(), Owners: []toolscache.Indexer{index(), index()}}
	add := func(i toolscache.Indexer, o any) {
		if err := i.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	add(p.Owners[0], &metav1.PartialObjectMetadata{ObjectMeta: child("rs", "deployment")})
	add(p.Owners[1], &metav1.PartialObjectMetadata{ObjectMeta: child("job", "cronjob")})
	for i := range 30 {
		add(p.Pods, &corev1.Pod{ObjectMeta: child(fmt.Sprintf("pod-%02d", i), "rs"), Status: corev1.PodStatus{
			Phase: corev1.PodRunning, ContainerStatuses: waiting("CrashLoopBackOff", strings.Repeat("x", 1000)),
		}})
	}
	add(p.Pods, &corev1.Pod{ObjectMeta: child("other", "job"), Status: corev1.PodStatus{Phase: corev1.PodSucceeded}})

	a := p.Associated("deployment")
	if a.Pods["CrashLoopBackOff"] != 30 || len(a.Pods) != 1 || len(a.Broken) != maxBrokenPods || a.Broken[0].Name != "pod-00" || len(a.Broken[0].Message) != maxMessageBytes {
		t.Errorf("Deployment: got %+v", a)
	}
	if a := p.Associated("cronjob"); a == nil || a.Pods["Succeeded"] != 1 {
		t.Errorf("CronJob: got %+v, want 1 Succeeded", a)
	}
	if a := p.Associated("unknown"); a != nil {
		t.Errorf("unknown object: got %+v", a)
	}
	pod := &corev1.Pod{ObjectMeta: child("pod-00", "rs")}
	if got := fmt.Sprint(p.OwnerChain(pod)); got != "[pod-00 rs deployment]" {
		t.Errorf("owner chain: got %s", got)
	}
}

func TestPodRequests(t *testing.T) {
	t.Parallel()
	container := func(cpu string, restart *corev1.ContainerRestartPolicy) corev1.Container {
		return corev1.Container{RestartPolicy: restart, Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), "example.com/gpu": resource.MustParse("1")},
		}}
	}
	always := corev1.ContainerRestartPolicyAlways
	cases := map[string]struct {
		reason string
		spec   corev1.PodSpec
		want   string
	}{
		"Sum":      {"Containers run at the same time.", corev1.PodSpec{Containers: []corev1.Container{container("1", nil), container("500m", nil)}}, "1500m"},
		"Init":     {"Init containers run before the others, so the maximum counts.", corev1.PodSpec{InitContainers: []corev1.Container{container("4", nil)}, Containers: []corev1.Container{container("1", nil)}}, "4"},
		"Sidecar":  {"A sidecar runs with the containers, so it is added.", corev1.PodSpec{InitContainers: []corev1.Container{container("2", &always)}, Containers: []corev1.Container{container("1", nil)}}, "3"},
		"Overhead": {"The overhead of the sandbox is added.", corev1.PodSpec{Overhead: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}, Containers: []corev1.Container{container("1", nil)}}, "1100m"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := podRequests(&corev1.Pod{Spec: tc.spec})
			if cpu := got[corev1.ResourceCPU]; cpu.Cmp(resource.MustParse(tc.want)) != 0 || len(got) != 1 {
				t.Errorf("%s\ngot %v, want cpu %s alone", tc.reason, got, tc.want)
			}
		})
	}
}

// A report has at most maxPodReasons reasons; the least frequent ones are summed up.
func TestMostFrequent(t *testing.T) {
	t.Parallel()
	pods := map[string]int32{"Running": 1000}
	for i := range 100 {
		pods[fmt.Sprintf("Reason%03d", i)] = 1
	}
	got := mostFrequent(pods)
	if len(got) != maxPodReasons || got["Running"] != 1000 || got["Reason029"] != 1 || got["Other"] != 70 {
		t.Errorf("got %d reasons: %v", len(got), got)
	}
}
