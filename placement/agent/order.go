// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// removal takes over an order, if it is for what the record has.
func (w *worker) removal(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (time.Duration, error) {
	if rec == nil {
		return w.ordered(ctx, work)
	}
	order := work.Spec.Removal
	if source := rec.Spec.Work.Source.UID; order.SourceUID != source {
		status := *work.Status.DeepCopy()
		meta.SetStatusCondition(&status.Conditions, condition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonRefused, fmt.Sprintf(
			"the order is for source %s, but what is here was made from source %s", order.SourceUID, source)))
		return w.hub.report(ctx, work, status)
	}
	if !same(rec.Spec.Work, work.Spec) {
		var err error
		if rec, err = w.records.putSpec(ctx, work.Name, work.Spec); err != nil {
			return 0, err
		}
	}
	return w.carryOut(ctx, work, rec)
}

// recheck is how soon objects are looked for that are being deleted; their watch says
// so earlier, as a rule.
const recheck = 2 * time.Second

// carryOut removes what an order in the record names, and reports when all is gone.
func (w *worker) carryOut(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (time.Duration, error) {
	done, err := w.applier.remove(ctx, rec, rec.Spec.Work.Removal.Policy)
	if err != nil || !done {
		return recheck, err
	}
	if err := w.records.remove(ctx, rec); err != nil {
		return 0, err
	}
	w.digests.Delete(rec.Name)
	w.data.Delete(rec.Name)
	log(ctx).Info("Removed what the hub ordered", "work", rec.Name, "policy", rec.Spec.Work.Removal.Policy)
	if work == nil {
		return 0, nil
	}
	return w.ordered(ctx, work)
}

// ordered reports that an order is carried out.
func (w *worker) ordered(ctx context.Context, work *v1alpha1.Work) (time.Duration, error) {
	return w.hub.report(ctx, work, v1alpha1.WorkStatus{Revision: work.Spec.Revision, Conditions: []metav1.Condition{
		condition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonOrdered, "the hub ordered the removal, and it is done"),
	}})
}
