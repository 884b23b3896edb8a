// SPDX-License-Identifier: Apache-2.0

package works

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func TestManifestResultStatus(t *testing.T) {
	t.Parallel()
	live := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(3)}}}
	live.SetUID("live")
	live.SetGeneration(7)
	entry := func(uid types.UID) *v1alpha1.AppliedObject {
		return &v1alpha1.AppliedObject{UID: uid, AppliedGeneration: 5, SourceGeneration: 2}
	}
	before := v1alpha1.ManifestStatus{UID: "before", Generation: 4, AppliedGeneration: 3, SourceGeneration: 1}
	deleted := &conditionError{reason: v1alpha1.ReasonDeletedInCluster}
	cases := map[string]struct {
		reason     string
		result     manifestResult
		uid        types.UID
		generation int64
		applied    int64 // generation
	}{
		"Recorded":   {"The live object is the recorded one.", manifestResult{live: live, entry: entry("live")}, "live", 7, 5},
		"Replaced":   {"Another live object is not reported.", manifestResult{live: live, entry: entry("gone")}, "", 0, 5},
		"RecordLost": {"A reported object without a record keeps its UID.", manifestResult{live: live, before: v1alpha1.ManifestStatus{UID: "live"}}, "live", 0, 0},
		"Unread":     {"An object that cannot be read keeps its UID.", manifestResult{err: errors.New("timeout"), entry: entry("gone"), unread: "gone"}, "gone", 0, 5},
		"Deleted":    {"A deleted object that runs once keeps its last report.", manifestResult{err: deleted, entry: entry("before"), before: before}, "before", 4, 3},
		"Unreported": {"A deleted object that was never reported has no report to keep.", manifestResult{err: deleted, entry: entry("gone")}, "", 0, 5},
		"None":       {"There is no object yet.", manifestResult{}, "", 0, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.result.object = desiredObject{object: &unstructured.Unstructured{Object: map[string]any{}}}
			got := tc.result.status()
			if got.UID != tc.uid || got.Generation != tc.generation || got.AppliedGeneration != tc.applied || len(got.Conditions) != 1 {
				t.Errorf("%s\ngot %+v, want UID %q, generation %d, applied generation %d", tc.reason, got, tc.uid, tc.generation, tc.applied)
			}
		})
	}
	invalid := manifestResult{resource: "configmaps", err: &conditionError{reason: v1alpha1.ReasonRefused}}
	if got := invalid.status(); got.Kind != "unknown" || got.Name != "configmaps" || got.Conditions[0].Reason != v1alpha1.ReasonRefused {
		t.Errorf("invalid manifest: got %+v", got)
	}
}

// The statuses of record and Work have an entry for each object, and the conditions of the Work's state.
func TestComputeStatuses(t *testing.T) {
	t.Parallel()
	rec := &v1alpha1.AppliedWork{Spec: v1alpha1.AppliedWorkSpec{Work: specAt("hub", "e", 5, 10)}}
	rec.Status.Objects = []v1alpha1.AppliedObject{{Resource: "configmaps", Name: "a", UID: "a"}}
	results := []manifestResult{
		{entry: &v1alpha1.AppliedObject{Resource: "configmaps", Name: "a", UID: "a", SourceGeneration: 2}},
		{entry: &v1alpha1.AppliedObject{Resource: "configmaps", Name: "b", UID: "b"}},
		{err: &conditionError{reason: v1alpha1.ReasonConflict, message: "c: its owner is another one"}},
	}
	for i := range results {
		results[i].object = desiredObject{object: &unstructured.Unstructured{Object: map[string]any{}}}
	}
	matching, restored := &v1alpha1.Work{Spec: specAt("hub", "e", 5, 10)}, &v1alpha1.Work{Spec: specAt("hub", "e", 5, 7)}
	cases := map[string]struct {
		reason             string
		work               *v1alpha1.Work
		synced             bool
		applied            string // reason of the condition
		halted             bool
		orphaned, mismatch bool
	}{
		"Matching":  {"The first error is the reason.", matching, true, v1alpha1.ReasonConflict, false, false, false},
		"Restored":  {"The Work is halted.", restored, true, v1alpha1.ReasonHubMismatch, true, false, true},
		"Gone":      {"The hub has no Work any more.", nil, true, v1alpha1.ReasonConflict, false, true, false},
		"NotSynced": {"The hub's Works are not read yet.", nil, false, v1alpha1.ReasonConflict, false, false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			record, report := computeStatuses("east", tc.work, rec, results, tc.synced)
			want := []v1alpha1.AppliedObject{*results[0].entry, *results[1].entry}
			if diff := cmp.Diff(want, record.Objects); diff != "" || record.Revision != 10 || len(report.Manifests) != len(results) {
				t.Errorf("%s\nrecord: got revision %d, %d manifests; -want +got\n%s", tc.reason, record.Revision, len(report.Manifests), diff)
			}
			for _, conditions := range [][]metav1.Condition{record.Conditions, report.Conditions} {
				if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionApplied); c == nil || c.Reason != tc.applied {
					t.Errorf("%s\nApplied: got %+v, want the reason %s", tc.reason, c, tc.applied)
				}
			}
			if got := report.Halted != nil; got != tc.halted {
				t.Errorf("%s\nhalted: got %t, want %t", tc.reason, got, tc.halted)
			}
			for reason, want := range map[string]struct {
				condition string
				isTrue    bool
			}{
				v1alpha1.ReasonOrphaned:    {v1alpha1.ConditionOrphaned, tc.orphaned},
				v1alpha1.ReasonHubMismatch: {v1alpha1.ConditionHubMismatch, tc.mismatch},
			} {
				c := meta.FindStatusCondition(record.Conditions, want.condition)
				if (c != nil) != want.isTrue || c != nil && (c.Status != metav1.ConditionTrue || c.Reason != reason) {
					t.Errorf("%s\n%s: got %+v, want it True with the reason %s: %t", tc.reason, want.condition, c, reason, want.isTrue)
				}
			}
		})
	}
	if len(rec.Status.Objects) != 1 || rec.Status.Objects[0].SourceGeneration != 0 || len(rec.Status.Conditions) != 0 {
		t.Errorf("record: got %+v, want it unchanged", rec.Status)
	}
}
