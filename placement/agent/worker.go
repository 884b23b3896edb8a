// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// worker brings the cluster to what the Works say, one Work at a time.
type worker struct {
	hub     *hub
	records *records
	applier *applier
	watcher *watcher
	pods    *pods
	halt    *halt
	// all makes every Work be looked at, after the halt has changed.
	all func(context.Context)

	digests sync.Map // by Work
	data    sync.Map // secretData by Work
}

// digests are what this agent applied, by objectKey, for one revision of a Work.
type digests struct {
	revision int64
	of       map[string]string
}

// reconcile looks at one Work; later is when to do so again, 0 for not before something
// happens.
func (w *worker) reconcile(ctx context.Context, name string) (later time.Duration, err error) {
	work, filled := w.hub.get(ctx, name)
	rec := w.records.get(name)
	w.judge(ctx, name, work, rec)
	why := w.halt.why()
	switch {
	case work == nil && rec == nil && !filled:
		return retryFirst, nil // its event came before the cache says that it has all
	case work == nil && rec == nil:
		w.hub.last.Delete(name)
		return 0, nil
	case why != "":
		return w.standStill(ctx, work, rec, why)
	case work != nil && work.Spec.Removal != nil:
		return w.removal(ctx, work, rec)
	}
	if work != nil && (rec == nil || !same(rec.Spec.Work, work.Spec)) {
		if rec, err = w.records.putSpec(ctx, name, work.Spec); err != nil {
			return 0, err
		}
	}
	if rec.Spec.Work.Removal != nil { // the order came before the hub went away
		return w.carryOut(ctx, work, rec)
	}
	return w.uphold(ctx, work, rec, filled)
}

// judge compares a Work with the records, and lets every Work know when the agent may
// write again, or may no longer.
func (w *worker) judge(ctx context.Context, name string, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) {
	reason := ""
	if work != nil {
		reason = mismatch(work, rec, w.records.any())
	}
	if w.halt.set(name, reason) {
		w.all(ctx)
	}
}

// standStill says why nothing is written, and writes no object.
func (w *worker) standStill(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork, why string) (time.Duration, error) {
	halted := condition(v1alpha1.ConditionHubMismatch, true, v1alpha1.ConditionHubMismatch, why)
	if rec != nil {
		next := rec.DeepCopy()
		if meta.SetStatusCondition(&next.Status.Conditions, halted) {
			if err := w.records.putStatus(ctx, next); err != nil {
				return 0, err
			}
		}
	}
	if work == nil {
		return 0, nil
	}
	status := *work.Status.DeepCopy()
	meta.SetStatusCondition(&status.Conditions, condition(v1alpha1.ConditionApplied, false, v1alpha1.ConditionHubMismatch, why))
	return w.hub.report(ctx, work, status)
}

// permanent tells whether an error needs no prompt retry: somebody must mend something.
func permanent(err error) bool {
	var r *refusal
	return errors.As(err, &r) || apierrors.IsForbidden(err)
}
