// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
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
	cluster string
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
	switch {
	case work == nil && rec == nil && !filled:
		return retryFirst, nil // its event came before the cache says that it has all
	case work == nil && rec == nil:
		w.judge(ctx, name, work, rec)
		w.hub.last.Delete(name)
		return 0, nil
	}
	if work != nil && rec != nil && !fits(work, rec) {
		if rec, err = w.resume(ctx, work, rec); err != nil {
			return 0, err
		}
	}
	if w.judge(ctx, name, work, rec) {
		return w.uphold(ctx, work, rec, filled)
	}
	return w.carry(ctx, name, work, rec, filled)
}

// carry carries out a Work that fits its record, or the record alone.
func (w *worker) carry(ctx context.Context, name string, work *v1alpha1.Work, rec *v1alpha1.AppliedWork, filled bool) (time.Duration, error) {
	halted, all := w.halt.first()
	switch {
	case work != nil && all > 0 && (rec == nil || work.Spec.Removal != nil):
		return w.wait(ctx, work, halted)
	case work != nil && work.Spec.Removal != nil:
		return w.removal(ctx, work, rec)
	}
	if work != nil && (rec == nil || changed(work, rec)) {
		var err error
		if rec, err = w.records.putSpec(ctx, name, work.Spec, ""); err != nil {
			return 0, err
		}
	}
	if rec.Spec.Work.Removal != nil { // the order came before the hub went away
		if !filled || all > 0 {
			return 0, nil // the hub may have taken it back, or have been restored since
		}
		return w.carryOut(ctx, work, rec)
	}
	return w.uphold(ctx, work, rec, filled)
}

// judge notes whether a Work fits its record, and lets every Work be looked at when others may
// go on now, or may no longer.
func (w *worker) judge(ctx context.Context, name string, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (halted bool) {
	halted = work != nil && rec != nil && !fits(work, rec)
	if w.halt.set(name, halted) {
		w.all(ctx)
	}
	return halted
}

// arrived notes whether a Work that has come or changed fits its record: before any order that
// came after it is carried out.
func (w *worker) arrived(ctx context.Context, name string) {
	w.judge(ctx, name, w.hub.peek(ctx, name), w.records.get(name))
}

// resume carries out a person's answer, if there is one: the record gets the Work's position,
// with what the hub says or with what the cluster has.
func (w *worker) resume(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (*v1alpha1.AppliedWork, error) {
	take := answerTo(work, rec)
	if take != v1alpha1.TakeHub && take != v1alpha1.TakeCluster {
		return rec, nil
	}
	spec, mark := resumed(take, work, rec), ""
	if err := w.applier.namespaces.handOver(ctx, &rec.Spec.Work, &spec); err != nil {
		return nil, err
	}
	if take == v1alpha1.TakeCluster {
		mark = v1alpha1.TakeCluster + ":" + position(&spec)
	}
	log(ctx).Info("Resumed a Work that did not fit its record", "work", work.Name, "take", take, "record", position(&rec.Spec.Work))
	return w.records.putSpec(ctx, work.Name, spec, mark)
}

// wait says that a Work is not carried out while another one does not fit its record.
func (w *worker) wait(ctx context.Context, work *v1alpha1.Work, halted string) (time.Duration, error) {
	status := *work.Status.DeepCopy()
	status.Halted = &v1alpha1.HaltedWork{}
	what := "it is not begun"
	if work.Spec.Removal != nil {
		what = "nothing is removed"
	}
	meta.SetStatusCondition(&status.Conditions, condition(v1alpha1.ConditionApplied, false, v1alpha1.ConditionHubMismatch, fmt.Sprintf(
		"%s while Work %s does not fit this cluster's record: the hub was restored, or is another one. Run at the hub: kubectl patchbay hub resume --in %s",
		what, halted, w.cluster)))
	return w.hub.report(ctx, work, status)
}

// permanent tells whether an error needs no prompt retry: somebody must mend something.
func permanent(err error) bool {
	var r *refusal
	return errors.As(err, &r) || apierrors.IsForbidden(err)
}
