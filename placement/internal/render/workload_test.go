// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func TestReplicas(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, text, want string
		has                int32
		none               bool
		set                int32
	}{
		"Deployment":  {reason: "spec.replicas is set", text: "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: 6}", has: 6, set: 2, want: "{replicas: 2}"},
		"Default":     {reason: "the default is 1", text: "apiVersion: apps/v1\nkind: StatefulSet\nspec: {}", has: 1, set: 0, want: "{replicas: 0}"},
		"Old":         {reason: "the kind is of the core group", text: "apiVersion: v1\nkind: ReplicationController\nspec: {}", has: 1, set: 4, want: "{replicas: 4}"},
		"Operator":    {reason: "a custom kind may have spec.replicas", text: "apiVersion: example.com/v1\nkind: Database\nspec: {replicas: 3}", has: 3, set: 1, want: "{replicas: 1}"},
		"Without":     {reason: "a custom kind may have no replicas", text: "apiVersion: example.com/v1\nkind: Database\nspec: {replicas: many}", none: true, set: 1, want: "{replicas: 1}"},
		"Job":         {reason: "parallelism is reduced in proportion, rounded up", text: "apiVersion: batch/v1\nkind: Job\nspec: {completions: 10, parallelism: 4}", has: 10, set: 3, want: "{completions: 3, parallelism: 2}"},
		"WholeJob":    {reason: "all completions keep the parallelism", text: "apiVersion: batch/v1\nkind: Job\nspec: {completions: 10, parallelism: 4}", has: 10, set: 10, want: "{completions: 10, parallelism: 4}"},
		"JobOfOne":    {reason: "the default parallelism is 1", text: "apiVersion: batch/v1\nkind: Job\nspec: {completions: 5}", has: 5, set: 5, want: "{completions: 5, parallelism: 1}"},
		"Queue":       {reason: "without completions, parallelism counts", text: "apiVersion: batch/v1\nkind: Job\nspec: {parallelism: 4}", has: 4, set: 3, want: "{parallelism: 3}"},
		"QueueOfOne":  {reason: "the default parallelism is 1", text: "apiVersion: batch/v1\nkind: Job\nspec: {}", has: 1, set: 1, want: "{parallelism: 1}"},
		"PausedJob":   {reason: "0 replicas pause a Job, because one with 0 completions is complete", text: "apiVersion: batch/v1\nkind: Job\nspec: {completions: 5, parallelism: 2}", has: 5, set: 0, want: "{completions: 5, parallelism: 0}"},
		"CronJob":     {reason: "the Jobs of a CronJob have replicas, not the CronJob", text: "apiVersion: batch/v1\nkind: CronJob\nspec: {}", none: true, set: 1, want: "{replicas: 1}"},
		"LargeNumber": {reason: "the API server rejects such a number", text: "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: 9999999999}", has: 1, set: 1, want: "{replicas: 1}"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := object(t, tc.text)
			if n, ok := Replicas(o); n != tc.has || ok == tc.none {
				t.Errorf("%s: got %d, %v", tc.reason, n, ok)
			}
			if err := SetReplicas(o, tc.set); err != nil {
				t.Fatal(err)
			}
			want := object(t, "apiVersion: v1\nkind: X\nspec: "+tc.want)
			if diff := cmp.Diff(want.Object["spec"], o.Object["spec"]); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
	broken := object(t, "apiVersion: batch/v1\nkind: Job\nmetadata: {namespace: shop, name: x}\nspec: text")
	if err := SetReplicas(broken, 1); err == nil || !strings.Contains(err.Error(), "Job shop/x") {
		t.Errorf("got error %v, want one with the object", err)
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, spec string
		want         corev1.ResourceList
	}{
		"Sum": {
			reason: "containers and sidecars are added up",
			spec:   "{initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 100m}}}], containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}}}, {name: b, resources: {requests: {cpu: 500m}}}]}",
			want:   corev1.ResourceList{"cpu": resource.MustParse("1600m"), "memory": resource.MustParse("1Gi")},
		},
		"Init": {
			reason: "an init container may need most",
			spec:   "{initContainers: [{name: i, resources: {requests: {memory: 4Gi}}}], containers: [{name: a, resources: {requests: {memory: 1Gi}}}], overhead: {memory: 1Gi}}",
			want:   corev1.ResourceList{"memory": resource.MustParse("5Gi")},
		},
		"Limit": {
			reason: "a limit counts where there is no request",
			spec:   "{containers: [{name: a, resources: {limits: {cpu: 2, memory: 2Gi}, requests: {cpu: 1}}}]}",
			want:   corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("2Gi")},
		},
		"Nothing": {reason: "the Pod requests nothing", spec: "{containers: [{name: a}]}", want: corev1.ResourceList{}},
		"NoPod":   {reason: "the object creates no Pods", spec: "{}"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := PodRequests(object(t, "apiVersion: apps/v1\nkind: Deployment\nspec: {template: {spec: "+tc.spec+"}}"))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestManifest(t *testing.T) {
	t.Parallel()
	a := object(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: shop}\ndata: {b: \"2\", a: \"1\"}")
	b := object(t, "kind: ConfigMap\ndata: {a: \"1\", b: \"2\"}\napiVersion: v1\nmetadata: {namespace: shop, name: x}")
	first, err := MarshalManifest(a)
	if err != nil {
		t.Fatal(err)
	}
	second, err := MarshalManifest(b)
	if err != nil || string(first) != string(second) || ManifestDigest(first) != ManifestDigest(second) {
		t.Errorf("one object, two manifests: %v\n%s\n%s", err, first, second)
	}
	want := `{"apiVersion":"v1","data":{"a":"1","b":"2"},"kind":"ConfigMap","metadata":{"name":"x","namespace":"shop"}}`
	if string(first) != want || len(ManifestDigest(first)) != 32 || ManifestDigest(first) == ManifestDigest([]byte("x")) {
		t.Errorf("got %s, %s", first, ManifestDigest(first))
	}
	room := v1alpha1.MaxManifestBytes - len(first)
	for more, fits := range map[int]bool{room: true, room + 1: false} {
		a.Object["data"] = map[string]any{"a": "1" + strings.Repeat("x", more), "b": "2"}
		if _, err := MarshalManifest(a); fits != (err == nil) || !fits && (!errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "ConfigMap shop/x has 196609 bytes")) {
			t.Errorf("%d bytes more: %v", more, err)
		}
	}
	a.Object["data"] = func() {}
	if _, err := MarshalManifest(a); err == nil {
		t.Error("wrote down a function")
	}
}

func TestHasFinished(t *testing.T) {
	t.Parallel()
	const job, pod = "apiVersion: batch/v1\nkind: Job\n", "apiVersion: v1\nkind: Pod\n"
	for name, tc := range map[string]struct {
		reason, text string
		want         bool
	}{
		"Job":        {"It runs.", job + "status: {active: 1}", false},
		"complete":   {"All Pods have succeeded.", job + "status: {conditions: [{type: Complete, status: 'True'}]}", true},
		"failed":     {"It is not tried again.", job + "status: {conditions: [{type: Suspended, status: 'False'}, {type: Failed, status: 'True'}]}", true},
		"completing": {"Its Pods have not ended.", job + "status: {conditions: [{type: SuccessCriteriaMet, status: 'True'}, {type: Complete, status: 'False'}]}", false},
		"Pod":        {"It runs.", pod + "status: {phase: Running}", false},
		"succeeded":  {"It has ended.", pod + "status: {phase: Succeeded}", true},
		"Deployment": {"Another kind does not end.", "apiVersion: apps/v1\nkind: Deployment\nstatus: {phase: Failed}", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := HasFinished(object(t, tc.text)); got != tc.want {
				t.Errorf("%s\ngot %t", tc.reason, got)
			}
		})
	}
}
