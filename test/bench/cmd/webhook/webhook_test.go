// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

func TestRunRejectsFlags(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
	}{
		"Unknown": {reason: "The flag does not exist.", args: []string{"-no-such-flag"}},
		"NoRate":  {reason: "Nothing would be measured.", args: []string{"-rate=0"}},
		"Short":   {reason: "A percentile needs many requests.", args: []string{"-duration=100ms"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := run(t.Context(), tc.args, io.Discard); err == nil {
				t.Errorf("%s\ngot no error", tc.reason)
			}
		})
	}
}

// scrape has two series of the webhook of Pods and one of another webhook.
const scrape = `# TYPE took histogram
took_bucket{name="pods.danm.io",operation="CREATE",rejected="false",le="0.005"} 90
took_bucket{name="pods.danm.io",operation="CREATE",rejected="false",le="0.025"} 98
took_bucket{name="pods.danm.io",operation="CREATE",rejected="false",le="+Inf"} 99
took_sum{name="pods.danm.io",operation="CREATE",rejected="false"} 0.5
took_count{name="pods.danm.io",operation="CREATE",rejected="false"} 99
took_bucket{name="pods.danm.io",operation="CREATE",rejected="true",le="0.005"} 0
took_bucket{name="pods.danm.io",operation="CREATE",rejected="true",le="0.025"} 1
took_bucket{name="pods.danm.io",operation="CREATE",rejected="true",le="+Inf"} 1
took_sum{name="pods.danm.io",operation="CREATE",rejected="true"} 0.1
took_count{name="pods.danm.io",operation="CREATE",rejected="true"} 1
took_bucket{name="networks.danm.io",operation="CREATE",rejected="false",le="0.005"} 1000
took_count{name="networks.danm.io",operation="CREATE",rejected="false"} 1000
`

func TestHistogram(t *testing.T) {
	t.Parallel()
	all := parseHistogram(scrape, "took", `name="pods.danm.io"`)
	want := histogram{count: 100, sum: 0.6, buckets: map[float64]float64{0.005: 90, 0.025: 99, math.Inf(1): 100}}
	if diff := cmp.Diff(want, all, cmp.AllowUnexported(histogram{})); diff != "" {
		t.Errorf("histogram: -want +got\n%s", diff)
	}
	before := histogram{count: 50, sum: 0.4, buckets: map[float64]float64{0.005: 50, 0.025: 50, math.Inf(1): 50}}
	added := all.minus(before)
	for name, tc := range map[string]struct {
		reason    string
		got, want float64
	}{
		"Mean":   {"200 ms in 50 calls.", added.meanMillis(), 4},
		"Half":   {"40 of 50 are in the first bucket.", added.boundMillis(0.5), 5},
		"Most":   {"49 of 50 are in the second one.", added.boundMillis(0.98), 25},
		"Beyond": {"One exceeds all bounds.", added.boundMillis(0.99), math.Inf(1)},
	} {
		if math.Abs(tc.got-tc.want) > 1e-9 {
			t.Errorf("%s: %s\ngot %v, want %v", name, tc.reason, tc.got, tc.want)
		}
	}
	if none := all.minus(all); !math.IsNaN(none.meanMillis()) || !math.IsNaN(none.boundMillis(0.99)) {
		t.Error("a histogram without values has a mean or a bound")
	}
}

// The controls differ from the load of interest in the annotation's key only, so that all Pods are of
// about the same size.
func TestPods(t *testing.T) {
	t.Parallel()
	o := options{networks: 100, namespaces: 8}
	for i := range 100 {
		annotated, plain := o.pod("p", i, true), o.pod("p", i, false)
		if annotated.Annotations[v1.InterfacesAnnotation] == "" || len(plain.Annotations[v1.InterfacesAnnotation]) > 0 {
			t.Fatalf("Pod %d: annotations are %v and %v", i, annotated.Annotations, plain.Annotations)
		}
		if diff := cmp.Diff(slices.Collect(maps.Values(annotated.Annotations)), slices.Collect(maps.Values(plain.Annotations))); diff != "" {
			t.Fatalf("Pod %d: values of annotations: -annotated +plain\n%s", i, diff)
		}
		annotated.Annotations, plain.Annotations = nil, nil
		if diff := cmp.Diff(annotated, plain); diff != "" {
			t.Fatalf("Pod %d: -annotated +plain\n%s", i, diff)
		}
	}
}

func TestReview(t *testing.T) {
	t.Parallel()
	o := options{networks: 10, namespaces: 2}
	sent := o.pod("p", 3, true)
	data, err := review(sent)
	if err != nil {
		t.Fatal(err)
	}
	var got admissionv1.AdmissionReview
	var pod corev1.Pod
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(got.Request.Object.Raw, &pod); err != nil {
		t.Fatal(err)
	}
	if pod.Annotations[v1.InterfacesAnnotation] != sent.Annotations[v1.InterfacesAnnotation] || got.Request.Namespace != sent.Namespace {
		t.Errorf("got a review of %s/%s with %v", got.Request.Namespace, pod.Name, pod.Annotations)
	}
}
