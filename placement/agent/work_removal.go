// SPDX-License-Identifier: Apache-2.0

package agent

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
	// recheck is how soon objects are looked for that are being deleted; their watch says
	// so earlier, as a rule.
	recheck = 2 * time.Second
	// slowRecheck is how soon a Work is looked at again that waits for a person.
	slowRecheck = 15 * time.Second
)

// removal takes over an order, if it is for what the record has.
func (w *worker) removal(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (time.Duration, error) {
	if halted := w.anyHalted(ctx); halted != "" {
		return w.wait(ctx, work, "removals wait", halted)
	}
	if rec == nil {
		return w.unrecorded(ctx, work)
	}
	order := work.Spec.Removal
	if source := rec.Spec.Work.Source.UID; order.SourceUID != source {
		return w.reportApplied(ctx, work, condition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonRefused, fmt.Sprintf(
			"the order is for source %s, but what is here was made from source %s", order.SourceUID, source)), nil)
	}
	if !same(rec.Spec.Work, work.Spec) {
		var err error
		if rec, err = w.records.putSpec(ctx, work.Name, work.Spec, ""); err != nil {
			return w.rejected(ctx, work, err)
		}
	}
	return w.carryOut(ctx, work, rec)
}

// carryOut removes what an order in the record names, and reports when all is gone.
func (w *worker) carryOut(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (time.Duration, error) {
	at, err := w.applier.remove(ctx, rec, rec.Spec.Work.Removal.Policy)
	if err != nil || !at.done {
		return w.unfinished(ctx, work, at, err)
	}
	if err := w.records.remove(ctx, rec); err != nil {
		return 0, err
	}
	w.digests.Delete(rec.Name)
	w.secrets.known.Delete(rec.Name)
	log(ctx).Info("Removed what the hub ordered", "work", rec.Name, "policy", rec.Spec.Work.Removal.Policy)
	if work == nil {
		return 0, nil
	}
	return w.ordered(ctx, work)
}

// unrecorded carries out an order that there is no record for: the record was lost, or nothing
// was ever made. Only what is known to be the object of the order is removed.
func (w *worker) unrecorded(ctx context.Context, work *v1alpha1.Work) (time.Duration, error) {
	at := progress{done: true}
	for i, m := range slices.Backward(work.Spec.Manifests) {
		t, err := readManifest(work.Spec, m)
		if err != nil {
			continue // what cannot be read was not made
		}
		one, err := w.applier.removeUnrecorded(ctx, t, &work.Spec, orderedUID(&work.Spec, i))
		if err != nil {
			return w.unfinished(ctx, work, progress{}, err)
		}
		at = at.and(one)
	}
	if !at.done {
		return w.unfinished(ctx, work, at, nil)
	}
	return w.ordered(ctx, work)
}

// ordered reports that an order is carried out.
func (w *worker) ordered(ctx context.Context, work *v1alpha1.Work) (time.Duration, error) {
	return w.hub.report(ctx, work, v1alpha1.WorkStatus{Term: work.Spec.Term, Revision: work.Spec.Revision, Conditions: []metav1.Condition{
		condition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonOrdered, "the hub ordered the removal, and it is done"),
	}})
}

// unfinished reports what keeps an order from being carried out, and says when to look again. What is
// under way is reported only in place of an earlier complaint, which is no longer true.
func (w *worker) unfinished(ctx context.Context, work *v1alpha1.Work, at progress, err error) (time.Duration, error) {
	why := condition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonRemovalBlocked, at.held)
	switch {
	case err != nil:
		why = manifestCondition(err)
	case at.held == "" && work != nil && complains(work):
		why = condition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonProgressing, at.waits)
	}
	if work == nil || why.Message == "" {
		return recheck, err
	}
	later, reportErr := w.reportApplied(ctx, work, why, nil)
	switch {
	case reportErr != nil:
		return recheck, errors.Join(err, reportErr)
	case later > 0: // it is too early for another report
		return min(later, recheck), err
	case why.Reason == v1alpha1.ReasonRecordLost: // a person must look
		return slowRecheck, nil
	}
	return recheck, err
}

// complains tells whether a Work's status says that somebody has to act.
func complains(work *v1alpha1.Work) bool {
	c := meta.FindStatusCondition(work.Status.Conditions, v1alpha1.ConditionApplied)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonOrdered
}
