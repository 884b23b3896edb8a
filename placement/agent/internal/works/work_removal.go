// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

const (
	// removalCheckInterval is how soon objects are looked for that are being deleted; their watch says
	// so earlier, as a rule.
	removalCheckInterval = 2 * time.Second
	// blockedCheckInterval is how soon a Work is looked at again that waits for a person.
	blockedCheckInterval = 15 * time.Second
)

// acceptRemoval takes over an order, if it is for what the record has.
func (w *workReconciler) acceptRemoval(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (time.Duration, error) {
	if halted := w.anyHalted(ctx); halted != "" {
		return w.reportWaiting(ctx, work, "removals wait", halted)
	}
	if rec == nil {
		return w.removeWithoutRecord(ctx, work)
	}
	order := work.Spec.Removal
	if source := rec.Spec.Work.Source.UID; order.SourceUID != source {
		return w.reportNotApplied(ctx, work, newCondition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonRefused, fmt.Sprintf(
			"the order is for source %s, but what is here was made from source %s", order.SourceUID, source)), nil)
	}
	if !equalAsJSON(rec.Spec.Work, work.Spec) {
		var err error
		if rec, err = w.records.saveSpec(ctx, work.Name, work.Spec, ""); err != nil {
			return w.reportRejected(ctx, work, err)
		}
	}
	return w.executeRemoval(ctx, work, rec)
}

// executeRemoval removes what an order in the record names, and reports when all is gone.
func (w *workReconciler) executeRemoval(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (time.Duration, error) {
	at, err := w.applier.removeRecorded(ctx, rec, rec.Spec.Work.Removal.Policy)
	if err != nil || !at.done {
		return w.reportRemovalProgress(ctx, work, at, err)
	}
	if err := w.records.deleteRecord(ctx, rec); err != nil {
		return 0, err
	}
	w.digests.Delete(rec.Name)
	w.secrets.byWork.Delete(rec.Name)
	log(ctx).Info("Removed what the hub ordered", "work", rec.Name, "policy", rec.Spec.Work.Removal.Policy)
	if work == nil {
		return 0, nil
	}
	return w.reportRemoved(ctx, work)
}

// removeWithoutRecord carries out an order that there is no record for: the record was lost, or nothing
// was ever made. Only what is known to be the object of the order is removed.
func (w *workReconciler) removeWithoutRecord(ctx context.Context, work *v1alpha1.Work) (time.Duration, error) {
	at := removalProgress{done: true}
	for i, m := range slices.Backward(work.Spec.Manifests) {
		t, err := parseManifest(work.Spec, m)
		if err != nil {
			continue // what cannot be read was not made
		}
		one, err := w.applier.removeUnrecorded(ctx, t, &work.Spec, removalUID(&work.Spec, i))
		if err != nil {
			return w.reportRemovalProgress(ctx, work, removalProgress{}, err)
		}
		at = at.combine(one)
	}
	if !at.done {
		return w.reportRemovalProgress(ctx, work, at, nil)
	}
	return w.reportRemoved(ctx, work)
}

// reportRemoved reports that an order is carried out.
func (w *workReconciler) reportRemoved(ctx context.Context, work *v1alpha1.Work) (time.Duration, error) {
	return w.hub.reportStatus(ctx, work, v1alpha1.WorkStatus{Term: work.Spec.Term, Revision: work.Spec.Revision, Conditions: []metav1.Condition{
		newCondition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonRemoved, "the hub ordered the removal, and it is done"),
	}})
}

// reportRemovalProgress reports what keeps an order from being carried out, and says when to look again. What is
// under way is reported only in place of an earlier complaint, which is no longer true.
func (w *workReconciler) reportRemovalProgress(ctx context.Context, work *v1alpha1.Work, at removalProgress, err error) (time.Duration, error) {
	why := newCondition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonRemovalBlocked, at.blocked)
	switch {
	case err != nil:
		why = manifestCondition(err)
	case at.blocked == "" && work != nil && reportsProblem(work):
		why = newCondition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonProgressing, at.pending)
	}
	if work == nil || why.Message == "" {
		return removalCheckInterval, err
	}
	later, reportErr := w.reportNotApplied(ctx, work, why, nil)
	switch {
	case reportErr != nil:
		return removalCheckInterval, errors.Join(err, reportErr)
	case later > 0: // it is too early for another report
		return min(later, removalCheckInterval), err
	case why.Reason == v1alpha1.ReasonRecordLost: // a person must look
		return blockedCheckInterval, nil
	}
	return removalCheckInterval, err
}

// reportsProblem tells whether a Work's status says that somebody has to act.
func reportsProblem(work *v1alpha1.Work) bool {
	c := meta.FindStatusCondition(work.Status.Conditions, v1alpha1.ConditionApplied)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonRemoved
}
