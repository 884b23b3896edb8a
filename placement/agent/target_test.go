// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func raw(text string) v1alpha1.Manifest {
	return v1alpha1.Manifest{Resource: "configmaps", Object: runtime.RawExtension{Raw: []byte(text)}}
}

func TestReadManifest(t *testing.T) {
	t.Parallel()
	spec := v1alpha1.WorkSpec{HubUID: "hub", Source: v1alpha1.ObjectReference{UID: "source"}}
	got, err := readManifest(spec, raw(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n","uid":"x","resourceVersion":"1",`+
		`"ownerReferences":[{"uid":"gone"}],"finalizers":["example.com/never"]},"status":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	o := got.object
	if o.GetUID() != "" || o.GetResourceVersion() != "" || o.GetOwnerReferences() != nil || o.GetFinalizers() != nil || o.Object["status"] != nil {
		t.Errorf("got %v: what is not the hub's to say is still there", o.Object)
	}
	if o.GetLabels()[v1alpha1.ManagedLabel] != "true" || o.GetAnnotations()[v1alpha1.HubUIDAnnotation] != "hub" || o.GetAnnotations()[v1alpha1.SourceUIDAnnotation] != "source" {
		t.Errorf("got %v: marks are missing", o.Object)
	}
	if got.String() != "configmaps n/a" || got.key() != "configmaps. n/a" {
		t.Errorf("got %s, key %q", got, got.key())
	}
	for _, bad := range []string{`{`, `{}`, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`, `{"kind":"X","metadata":{"name":"a"}}`} {
		if _, err := readManifest(spec, raw(bad)); err == nil {
			t.Errorf("%s: accepted", bad)
		}
	}
}

// Of our own networks only what does not change with every address travels.
func TestExactStatus(t *testing.T) {
	t.Parallel()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "danm.io/v1", "kind": "ClusterNetwork",
		"status": map[string]any{"allocated": int64(3), "capacity": int64(9), "conditions": []any{}, "ipam": map[string]any{"v4": "bitmap"}},
	}}
	if got, _ := exactStatus(o); string(got.Raw) != `{"allocated":3,"capacity":9,"conditions":[]}` {
		t.Errorf("network: got %s", got.Raw)
	}
	o.SetAPIVersion("example.com/v1")
	if got, _ := exactStatus(o); !strings.Contains(string(got.Raw), "bitmap") {
		t.Errorf("others: got %s, want all", got.Raw)
	}
	if got, _ := exactStatus(&unstructured.Unstructured{Object: map[string]any{}}); got != nil {
		t.Error("no status: got one")
	}
	var conditions, parts []any
	for range 100 {
		conditions = append(conditions, map[string]any{"type": "Ready", "status": "True", "message": strings.Repeat("m", 2000), "extra": "x"})
		parts = append(parts, strings.Repeat("p", 1000))
	}
	o.Object["status"] = map[string]any{"replicas": int64(3), "observedGeneration": int64(7), "conditions": conditions, "parts": parts}
	got, truncated := exactStatus(o)
	if text := string(got.Raw); !truncated || len(text) > v1alpha1.MaxStatusBytes || !strings.Contains(text, `"observedGeneration":7`) ||
		!strings.Contains(text, `"replicas":3`) || strings.Contains(text, "ppp") || strings.Contains(text, "extra") {
		t.Errorf("large: got truncated %t, %d bytes: %.200s", truncated, len(text), text)
	}
}

// A condition keeps its time while it says the same.
func TestKeepTimes(t *testing.T) {
	t.Parallel()
	old := v1alpha1.WorkStatus{Conditions: []metav1.Condition{
		{Type: "Applied", Status: metav1.ConditionTrue, LastTransitionTime: metav1.Unix(1, 0)},
		{Type: "Ready", Status: metav1.ConditionTrue, LastTransitionTime: metav1.Unix(1, 0)},
	}}
	now := v1alpha1.WorkStatus{Conditions: []metav1.Condition{condition("Applied", true, "x", "another message"), condition("Ready", false, "x", "")}}
	keepTimes(&now, old)
	if got := now.Conditions[0].LastTransitionTime.Unix(); got != 1 {
		t.Errorf("same status: got time %d, want 1", got)
	}
	if now.Conditions[1].LastTransitionTime.Unix() <= 1 {
		t.Error("another status: got the old time")
	}
	if !same(now, now) || same(now, old) {
		t.Error("same compares wrong")
	}
}

// The first failure gives the reason, all of them the message.
func TestAppliedCondition(t *testing.T) {
	t.Parallel()
	if c := appliedCondition(nil); c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonSettled {
		t.Errorf("none: got %+v", c)
	}
	c := appliedCondition([]error{fmt.Errorf("wrapped: %w", &refusal{reason: v1alpha1.ReasonConflict, message: "field a"}), errors.New("no answer")})
	if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonConflict || c.Message != "field a; no answer" {
		t.Errorf("two: got %+v", c)
	}
}
