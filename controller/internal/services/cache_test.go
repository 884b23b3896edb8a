// SPDX-License-Identifier: Apache-2.0

package services

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// What is cached of each Pod of a cluster decides how much memory this takes.
func TestCachedObjectsAreSlim(t *testing.T) {
	t.Parallel()
	gone := metav1.NewTime(time.Unix(1, 0))
	full := metav1.ObjectMeta{
		Namespace: "ns", Name: "n", UID: "u", ResourceVersion: "7", Generation: 3, DeletionTimestamp: &gone,
		Labels: map[string]string{"app": "a"}, Annotations: map[string]string{"a": "b"}, Finalizers: []string{"f"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}
	bare := metav1.ObjectMeta{Namespace: "ns", Name: "n", UID: "u", ResourceVersion: "7"}
	labelled := bare
	labelled.Labels, labelled.DeletionTimestamp = full.Labels, &gone
	living := full
	living.DeletionTimestamp = nil
	living.Annotations = map[string]string{"a": "b", "danm.io/selector": `{"app":"a"}`, "danm.k8s.io/network": "n"}
	ours := bare
	ours.Labels, ours.Annotations = full.Labels, map[string]string{"danm.io/selector": `{"app":"a"}`, "danm.k8s.io/network": "n"}
	named := corev1.ContainerPort{Name: "web", ContainerPort: 80}
	spec := corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "None", PublishNotReadyAddresses: true, IPFamilies: []corev1.IPFamily{"IPv4"}, Ports: []corev1.ServicePort{{Port: 1}}}
	more := spec
	more.SessionAffinity, more.ClusterIPs = corev1.ServiceAffinityNone, []string{"None"}
	cases := map[string]struct {
		reason    string
		transform func(any) (any, error)
		in, want  any
	}{
		"Pod": {
			reason: "The Pod keeps the fields of an endpoint.", transform: slimPod,
			in: &corev1.Pod{
				ObjectMeta: full,
				Spec: corev1.PodSpec{
					NodeName: "node", Hostname: "h", Subdomain: "s", SchedulerName: "x", Volumes: []corev1.Volume{{Name: "v"}},
					Containers: []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{ContainerPort: 1}, named}}},
				},
				Status: corev1.PodStatus{
					Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled}, {Type: corev1.PodReady, Status: corev1.ConditionTrue, Message: "m"}},
				},
			},
			want: &corev1.Pod{
				ObjectMeta: labelled,
				Spec:       corev1.PodSpec{NodeName: "node", Hostname: "h", Subdomain: "s", Containers: []corev1.Container{{Ports: []corev1.ContainerPort{named}}}},
				Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
			},
		},
		"Service": {reason: "The Service keeps the fields that decide about endpoints.", transform: slimService, in: &corev1.Service{ObjectMeta: living, Spec: more}, want: &corev1.Service{ObjectMeta: ours, Spec: spec}},
		"Foreign": {reason: "An unmanaged Service keeps only its metadata.", transform: slimService, in: &corev1.Service{ObjectMeta: full, Spec: more}, want: &corev1.Service{ObjectMeta: bare}},
		"NoPod":   {reason: "The tombstone of a missed deletion is not changed.", transform: slimPod, in: "tombstone", want: "tombstone"},
		"NoSvc":   {reason: "The tombstone of a missed deletion is not changed.", transform: slimService, in: "tombstone", want: "tombstone"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tc.transform(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// Pods and Services must name the same label, whatever a map's order is.
func TestPick(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		selector map[string]string
		want     string
	}{
		"One":     {reason: "The selector has one label.", selector: map[string]string{"app": "web"}, want: "app=web"},
		"Longest": {reason: "A long label is seldom shared by many Pods.", selector: map[string]string{"env": "x", "app": "payments"}, want: "app=payments"},
		"Tie":     {reason: "Of equally long labels the first by name wins.", selector: map[string]string{"b": "c", "a": "c"}, want: "a=c"},
		"Empty":   {reason: "A label may have no value.", selector: map[string]string{"a": ""}, want: "a="},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 20 {
				if got := indexedLabel(tc.selector); got != tc.want {
					t.Fatalf("%s: got %q, want %q", tc.reason, got, tc.want)
				}
			}
		})
	}
}

// Pods share a bucket, and no DanmEps. There are no more buckets than there should be.
func TestBucketHasOthers(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for n := range 3 * podBuckets {
		seen[podBucket(strconv.Itoa(n))] = true
	}
	if len(seen) > podBuckets || len(seen) < podBuckets/2 {
		t.Errorf("%d buckets, want at most %d and most of them", len(seen), podBuckets)
	}
	ep := func(name, pod string) v1.DanmEp {
		return v1.DanmEp{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.DanmEpSpec{Pod: pod}}
	}
	r := newTested(&server{eps: []v1.DanmEp{ep("1", "a"), ep("2", "b"), ep("3", "a")}}, nil, nil)
	got, err := r.reader.danmEpsOfPod(t.Context(), "ns", "a")
	if diff := cmp.Diff([]v1.DanmEp{ep("1", "a"), ep("3", "a")}, got); diff != "" || err != nil {
		t.Errorf("DanmEps of a (-want +got), error %v:\n%s", err, diff)
	}
}

// An Event is made once, again when the message changes, and again after the subject was in order.
func TestEventsAreDeduplicated(t *testing.T) {
	t.Parallel()
	var reporter eventReporter
	key := client.ObjectKey{Namespace: "ns", Name: "a"}
	for i, step := range []struct {
		reason, subject, message string
		want                     bool
	}{
		{"The first message is new.", "", "bad", true}, {"It is repeated.", "", "bad", false}, {"Another subject has it.", "net", "bad", true},
		{"The message changes.", "", "worse", true}, {"No message makes no Event.", "", "", false}, {"The message is back.", "", "bad", true},
	} {
		if got := reporter.isNew(key, step.subject, step.message); got != step.want {
			t.Errorf("step %d, %s: got %t, want %t", i, step.reason, got, step.want)
		}
	}
	reporter.forget(key)
	if !reporter.isNew(key, "", "bad") {
		t.Error("a Service that was created again gets no Event")
	}
	reporter.isNew(key, "net", "bad")
	reporter.retainSubjects(key, "")
	if reporter.isNew(key, "", "bad") || !reporter.isNew(key, "net", "bad") {
		t.Error("a network that was removed from the Service and added again gets no Event")
	}
}
