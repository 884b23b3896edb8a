// SPDX-License-Identifier: Apache-2.0

package works

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/records"
)

func raw(text string) v1alpha1.Manifest {
	return v1alpha1.Manifest{Resource: "configmaps", Object: runtime.RawExtension{Raw: []byte(text)}}
}

func TestParseManifest(t *testing.T) {
	t.Parallel()
	spec := v1alpha1.WorkSpec{HubUID: "hub", Source: v1alpha1.ObjectReference{UID: "source"}}
	got, err := parseManifest(spec, raw(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n","uid":"x","resourceVersion":"1",`+
		`"ownerReferences":[{"uid":"gone"}],"finalizers":["example.com/never"]},"status":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	o := got.object
	if o.GetUID() != "" || o.GetResourceVersion() != "" || o.GetOwnerReferences() != nil || o.GetFinalizers() != nil || o.Object["status"] != nil {
		t.Errorf("got %v, want no fields that belong to the cluster", o.Object)
	}
	if o.GetLabels()[v1alpha1.ManagedLabel] != "true" || o.GetAnnotations()[v1alpha1.HubUIDAnnotation] != "hub" || o.GetAnnotations()[v1alpha1.SourceUIDAnnotation] != "source" {
		t.Errorf("got %v, want the agent's label and annotations", o.Object)
	}
	if got.String() != "configmaps n/a" || got.key() != "configmaps. n/a" || got.kubectlArgs() != "configmaps/a --namespace=n" {
		t.Errorf("got %s, key %q, argument %q", got, got.key(), got.kubectlArgs())
	}
	for _, bad := range []string{`{`, `{}`, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`, `{"kind":"X","metadata":{"name":"a"}}`} {
		if _, err := parseManifest(spec, raw(bad)); err == nil {
			t.Errorf("%s: got no error", bad)
		}
	}
}

// A condition must have a reason, also when a webhook rejects without one: the hub's API server would reject
// the report.
func TestConditionErrorHasAReason(t *testing.T) {
	t.Parallel()
	target, err := parseManifest(v1alpha1.WorkSpec{}, raw(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n"}}`))
	if err != nil {
		t.Fatal(err)
	}
	denied := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadRequest, Message: "denied"}}
	if r, ok := errors.AsType[*conditionError](asConditionError(target, denied)); !ok || r.reason != v1alpha1.ReasonRefused {
		t.Errorf("got %v, want %s", r, v1alpha1.ReasonRefused)
	}
}

// The report on a network of DANM has only the fields that do not change with each address claim.
func TestReportedStatus(t *testing.T) {
	t.Parallel()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "danm.io/v1", "kind": "ClusterNetwork",
		"status": map[string]any{"pools": []any{map[string]any{"family": "IPv4", "inUse": int64(3)}}, "conditions": []any{}, "ipam": map[string]any{"v4": "bitmap"}},
	}}
	if got, _ := reportedStatus(o); string(got.Raw) != `{"conditions":[],"pools":[{"family":"IPv4","inUse":3}]}` {
		t.Errorf("network: got %s", got.Raw)
	}
	o.SetAPIVersion("example.com/v1")
	if got, _ := reportedStatus(o); !strings.Contains(string(got.Raw), "bitmap") {
		t.Errorf("others: got %s, want all", got.Raw)
	}
	if got, _ := reportedStatus(&unstructured.Unstructured{Object: map[string]any{}}); got != nil {
		t.Error("no status: got one")
	}
	var conditions, parts []any
	for range 100 {
		conditions = append(conditions, map[string]any{"type": "Ready", "status": "True", "message": strings.Repeat("m", 2000), "extra": "x"})
		parts = append(parts, strings.Repeat("p", 1000))
	}
	o.Object["status"] = map[string]any{"replicas": int64(3), "observedGeneration": int64(7), "conditions": conditions, "parts": parts}
	got, truncated := reportedStatus(o)
	if text := string(got.Raw); !truncated || len(text) > v1alpha1.MaxStatusBytes || !strings.Contains(text, `"observedGeneration":7`) ||
		!strings.Contains(text, `"replicas":3`) || strings.Contains(text, "ppp") || strings.Contains(text, "extra") {
		t.Errorf("large: got truncated %t, %d bytes: %.200s", truncated, len(text), text)
	}
}

// The truncated status is the same each time, and within the limit.
func TestTruncate(t *testing.T) {
	t.Parallel()
	status := map[string]any{"observedGeneration": int64(7), "text": strings.Repeat("x", 60<<10)}
	var conditions []any
	for i := range 5000 { // alone more than the limit
		status[fmt.Sprint("count", i)] = int64(i)
	}
	for i := range 50 {
		conditions = append(conditions, map[string]any{"type": fmt.Sprint("Type", i), "status": "True", "message": strings.Repeat("<\u00e4", 2000)})
	}
	status["conditions"] = conditions
	o := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	first, truncated := reportedStatus(o)
	again, _ := reportedStatus(o)
	if !truncated || len(first.Raw) > v1alpha1.MaxStatusBytes || string(first.Raw) != string(again.Raw) {
		t.Errorf("got %d bytes, truncated %t, the same again %t", len(first.Raw), truncated, string(first.Raw) == string(again.Raw))
	}
	if !strings.Contains(string(first.Raw), `"observedGeneration":7`) || strings.Contains(string(first.Raw), `xx`) {
		t.Errorf("got %.200s, want the observedGeneration and no text", first.Raw)
	}
}

// A Work with its status has at most MaxObjectBytes.
func TestShrinkStatus(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason                        string
		manifest, statuses, bytes     int
		truncated, associated, status bool
	}{
		"small":    {"The whole status fits.", 10 << 10, 4, 8 << 10, false, true, true},
		"statuses": {"Some of many statuses are truncated.", 10 << 10, 16, 40 << 10, true, true, true},
		"narrow":   {"Only the counts fit beside the manifest.", 239 << 10, 1, 40 << 10, true, false, true},
		"full":     {"Nothing fits beside the manifest.", 240 << 10, 1, 40 << 10, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := &v1alpha1.Work{Spec: v1alpha1.WorkSpec{Manifests: []v1alpha1.Manifest{raw(`{"data":"` + strings.Repeat("m", tc.manifest) + `"}`)}}}
			status := v1alpha1.WorkStatus{}
			for range tc.statuses {
				status.Manifests = append(status.Manifests, v1alpha1.ManifestStatus{
					Status:     &runtime.RawExtension{Raw: []byte(`{"replicas":3,"text":"` + strings.Repeat("s", tc.bytes) + `"}`)},
					Associated: &v1alpha1.Associated{Broken: []v1alpha1.BrokenPod{{Message: strings.Repeat("p", 1000)}}},
				})
			}
			shrinkStatus(work, &status)
			first := status.Manifests[0]
			if first.Truncated != tc.truncated || (first.Associated != nil) != tc.associated || (first.Status != nil) != tc.status {
				t.Errorf("%s\ngot truncated %t, Pods %t, status %t", tc.reason, first.Truncated, first.Associated != nil, first.Status != nil)
			}
			work.Status = status
			if got := jsonSize(work); got > v1alpha1.MaxObjectBytes {
				t.Errorf("%s\nWork: got %d bytes, want at most %d", tc.reason, got, v1alpha1.MaxObjectBytes)
			}
		})
	}
}

// A Work whose record would be too large is refused before anything is written.
func TestRecordsRefuseTooLarge(t *testing.T) {
	t.Parallel()
	spec := v1alpha1.WorkSpec{Manifests: []v1alpha1.Manifest{raw(`{"data":"` + strings.Repeat("m", v1alpha1.MaxObjectBytes) + `"}`)}}
	_, err := records.New(nil).SaveSpec(t.Context(), "web", spec, "")
	if c, ok := rejectedCondition(err); !ok || c.Reason != v1alpha1.ReasonTooLarge || !strings.Contains(c.Message, "Work web: spec:") {
		t.Errorf("got %v, want a refusal that names the Work and the field", err)
	}
}

// A condition keeps its time while it says the same.
func TestKeepTimes(t *testing.T) {
	t.Parallel()
	old := v1alpha1.WorkStatus{Conditions: []metav1.Condition{
		{Type: "Applied", Status: metav1.ConditionTrue, LastTransitionTime: metav1.Unix(1, 0)},
		{Type: "Ready", Status: metav1.ConditionTrue, LastTransitionTime: metav1.Unix(1, 0)},
	}}
	now := v1alpha1.WorkStatus{Conditions: []metav1.Condition{newCondition("Applied", true, "x", "another message"), newCondition("Ready", false, "x", "")}}
	keepTransitionTimes(&now, old)
	if got := now.Conditions[0].LastTransitionTime.Unix(); got != 1 {
		t.Errorf("same status: got time %d, want 1", got)
	}
	if now.Conditions[1].LastTransitionTime.Unix() <= 1 {
		t.Error("another status: got the old time")
	}
	if !equalAsJSON(now, now) || equalAsJSON(now, old) {
		t.Error("same compares wrong")
	}
}

// The first failure gives the reason, all of them the message.
func TestAppliedCondition(t *testing.T) {
	t.Parallel()
	if c := appliedCondition(nil); c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonAsExpected {
		t.Errorf("none: got %+v", c)
	}
	c := appliedCondition([]error{fmt.Errorf("wrapped: %w", &conditionError{reason: v1alpha1.ReasonConflict, message: "field a"}), errors.New("no answer")})
	if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonConflict || c.Message != "field a; no answer" {
		t.Errorf("two: got %+v", c)
	}
	var many []error
	for range 16 {
		many = append(many, errors.New(strings.Repeat("\u00e4", 1000)))
	}
	if c := appliedCondition(many); len(c.Message) > 1024 || !utf8.ValidString(c.Message) {
		t.Errorf("many: got %d bytes, want at most 1 KiB of valid UTF-8", len(c.Message))
	}
}
