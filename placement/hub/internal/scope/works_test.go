// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// A Work is removed when the agent has carried out the present order, or a user has answered it.
func TestIsRemoved(t *testing.T) {
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
		"ordered": {"The agent has carried out the order.", status(7, 5, metav1.ConditionFalse, v1alpha1.ReasonRemoved), true},
		"earlier": {"The agent has carried out an earlier order.", status(7, 4, metav1.ConditionFalse, v1alpha1.ReasonRemoved), false},
		"blocked": {"A finalizer blocks the removal.", status(7, 5, metav1.ConditionFalse, v1alpha1.ReasonRemovalBlocked), false},
		"lost":    {"The agent cannot tell whether the object is the ordered one.", status(7, 5, metav1.ConditionFalse, v1alpha1.ReasonRecordLost), false},
		"pending": {"The agent has not seen the order.", status(7, 4, metav1.ConditionTrue, v1alpha1.ReasonAsExpected), false},
		"kept":    {"A user has answered that the cluster keeps the object.", status(7, 5, metav1.ConditionTrue, v1alpha1.ReasonAsExpected), true},
		"halted":  {"The agent's record is ahead of a restored hub.", status(6, 5, metav1.ConditionTrue, v1alpha1.ReasonAsExpected), false},
		"none":    {"The agent has not reported.", v1alpha1.WorkStatus{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &v1alpha1.Work{Spec: v1alpha1.WorkSpec{Term: 7, Revision: 5, Removal: &v1alpha1.Removal{}}, Status: tc.status}
			if got := IsRemoved(w); got != tc.want {
				t.Errorf("%s\nIsRemoved: got %t, want %t", tc.reason, got, tc.want)
			}
			if w.Spec.Removal = nil; IsRemoved(w) {
				t.Error("IsRemoved: got true without an order")
			}
		})
	}
}

// The report of a removal has its reason from the Work, not from the manifest, whose condition is
// from before the order.
func TestReportOfRemoval(t *testing.T) {
	t.Parallel()
	failed := func(reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
	}
	w := &v1alpha1.Work{Status: v1alpha1.WorkStatus{
		Conditions: failed(v1alpha1.ReasonRemovalBlocked, "a finalizer"),
		Manifests:  []v1alpha1.ManifestStatus{{Conditions: failed(v1alpha1.ReasonConflict, "not ours")}},
	}}
	if r := ReportOf(schema.GroupKind{Kind: "ConfigMap"}, w); r.Message != "not ours" || r.RefusalReason != v1alpha1.ReasonConflict {
		t.Errorf("applied: got %q and %q, want those of the manifest", r.Message, r.RefusalReason)
	}
	w.Spec.Removal = &v1alpha1.Removal{}
	if r := ReportOf(schema.GroupKind{Kind: "ConfigMap"}, w); r.Message != "a finalizer" || r.RefusalReason != v1alpha1.ReasonRemovalBlocked {
		t.Errorf("removed: got %q and %q, want those of the Work", r.Message, r.RefusalReason)
	}
}
