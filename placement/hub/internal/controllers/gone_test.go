// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func TestLostPod(t *testing.T) {
	t.Parallel()
	pod, job := schema.GroupKind{Kind: "Pod"}, schema.GroupKind{Group: "batch", Kind: "Job"}
	for name, tc := range map[string]struct {
		reason string
		kind   schema.GroupKind
		state  v1alpha1.TargetState
		uid    string
		gone   bool
		want   bool
	}{
		"Lost":    {"Whoever made it makes another one.", pod, v1alpha1.TargetActive, "now", true, true},
		"There":   {"It runs.", pod, v1alpha1.TargetActive, "now", false, false},
		"Leaving": {"It runs elsewhere by now, or is to.", pod, v1alpha1.TargetDraining, "now", true, false},
		"Removed": {"Its removal was ordered.", pod, v1alpha1.TargetRemoving, "now", true, false},
		"Earlier": {"An earlier Pod of the same name is gone, not this one.", pod, v1alpha1.TargetActive, "before", true, false},
		"Job":     {"What ran to its end is summed up as it was last.", job, v1alpha1.TargetActive, "now", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := gonePass(tc.kind, tc.uid)
			if got := p.lostPod(&v1alpha1.Target{Cluster: "east", State: tc.state}, facts{gone: tc.gone}); got != tc.want {
				t.Errorf("%s\nlostPod: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// What is gone in a cluster does not keep it from being left.
func TestGoneCanLeave(t *testing.T) {
	t.Parallel()
	p := gonePass(schema.GroupKind{Group: "batch", Kind: "Job"}, "now")
	p.facts = map[string]facts{"east": {gone: true, counts: v1alpha1.ReplicaCounts{Total: 2, Available: 2}}}
	r := p.row(t.Context(), v1alpha1.Target{Cluster: "east", State: v1alpha1.TargetDraining, RequestedReplicas: new(int32(0))}, wanted{counted: true})
	if !r.ReportCurrent || r.Total != 0 || r.Available != 0 {
		t.Errorf("row: got %+v, want it current and empty", r)
	}
}

// gonePass is of an object with the UID "now", whose Work in east carries that of uid.
func gonePass(gk schema.GroupKind, uid string) *pass {
	o := &unstructured.Unstructured{}
	o.SetUID("now")
	w := &v1alpha1.Work{}
	w.Spec.Source.UID = types.UID(uid)
	return &pass{key: Key{GroupKind: gk, Name: "once"}, object: o, works: map[string]*v1alpha1.Work{"east": w}}
}

func TestRemoved(t *testing.T) {
	t.Parallel()
	status := func(term, revision int64, status metav1.ConditionStatus, reason string) v1alpha1.WorkStatus {
		return v1alpha1.WorkStatus{Term: term, Revision: revision, Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionApplied, Status: status, Reason: reason},
		}}
	}
	for name, tc := range map[string]struct {
		reason string
		status v1alpha1.WorkStatus
		want   bool
	}{
		"ordered":   {"It is done.", status(7, 5, metav1.ConditionFalse, v1alpha1.ReasonRemoved), true},
		"earlier":   {"Another order was carried out.", status(7, 4, metav1.ConditionFalse, v1alpha1.ReasonRemoved), false},
		"held":      {"Something holds it.", status(7, 5, metav1.ConditionFalse, v1alpha1.ReasonRemovalBlocked), false},
		"lost":      {"It cannot be told to be the one.", status(7, 5, metav1.ConditionFalse, v1alpha1.ReasonRecordLost), false},
		"not heard": {"The agent has not seen the order.", status(7, 4, metav1.ConditionTrue, v1alpha1.ReasonAsExpected), false},
		"kept":      {"A person has answered that it stays.", status(7, 5, metav1.ConditionTrue, v1alpha1.ReasonAsExpected), true},
		"halted":    {"The record is ahead of a restored hub.", status(6, 5, metav1.ConditionTrue, v1alpha1.ReasonAsExpected), false},
		"nothing":   {"Nothing is reported.", v1alpha1.WorkStatus{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &v1alpha1.Work{Spec: v1alpha1.WorkSpec{Term: 7, Revision: 5, Removal: &v1alpha1.Removal{}}, Status: tc.status}
			if got := removed(w); got != tc.want {
				t.Errorf("%s\nremoved: got %t, want %t", tc.reason, got, tc.want)
			}
			if w.Spec.Removal = nil; removed(w) {
				t.Error("removed without an order")
			}
		})
	}
}

// An object with a volume claim may have it in each cluster that has been sent the object, until
// that reports that it has not.
func TestVolumes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		state  v1alpha1.TargetState
		facts  map[string]facts
		want   int
	}{
		"not in the cache": {"Its Work was made just now.", v1alpha1.TargetActive, nil, 1},
		"not reported":     {"The cluster may have made it.", v1alpha1.TargetActive, map[string]facts{"east": {}}, 1},
		"made":             {"It has the object.", v1alpha1.TargetActive, map[string]facts{"east": {uids: []types.UID{"x"}}}, 1},
		"leaving":          {"It has the object yet.", v1alpha1.TargetDraining, map[string]facts{"east": {uids: []types.UID{"x"}}}, 1},
		"about to":         {"Its first report was of before.", v1alpha1.TargetActive, map[string]facts{"east": {uids: []types.UID{""}}}, 1},
		"refused":          {"It has not made it.", v1alpha1.TargetActive, map[string]facts{"east": {uids: []types.UID{""}, refused: "Refused"}}, 0},
		"refuses a change": {"It has the object as it was.", v1alpha1.TargetActive, map[string]facts{"east": {uids: []types.UID{"x"}, refused: "Invalid"}}, 1},
		"pending":          {"It was not sent.", v1alpha1.TargetPending, nil, 0},
		"removed":          {"A person has ordered that.", v1alpha1.TargetRemoving, map[string]facts{"east": {uids: []types.UID{"x"}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &pass{key: Key{GroupKind: schema.GroupKind{Kind: "PersistentVolumeClaim"}, Name: "data"}, object: &unstructured.Unstructured{}, facts: tc.facts}
			a := &v1alpha1.Assignment{}
			a.Spec.Targets = []v1alpha1.Target{{Cluster: "east", State: tc.state}}
			if got := p.volumes(a); len(got) != tc.want {
				t.Errorf("%s\nvolumes: got %v, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

// What holds a removal is said, and not why the object was not applied before the order.
func TestFactsOfRemoval(t *testing.T) {
	t.Parallel()
	failed := func(reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
	}
	w := &v1alpha1.Work{Status: v1alpha1.WorkStatus{
		Conditions: failed(v1alpha1.ReasonRemovalBlocked, "a finalizer"),
		Manifests:  []v1alpha1.ManifestStatus{{Conditions: failed(v1alpha1.ReasonConflict, "not ours")}},
	}}
	if f := factsOf(schema.GroupKind{Kind: "ConfigMap"}, w); f.message != "not ours" || f.refused != v1alpha1.ReasonConflict {
		t.Errorf("applied: got %q and %q, want what is said of the manifest", f.message, f.refused)
	}
	w.Spec.Removal = &v1alpha1.Removal{}
	if f := factsOf(schema.GroupKind{Kind: "ConfigMap"}, w); f.message != "a finalizer" || f.refused != v1alpha1.ReasonRemovalBlocked {
		t.Errorf("removed: got %q and %q, want what is said of the Work", f.message, f.refused)
	}
}
