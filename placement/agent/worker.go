// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// worker brings the cluster to what the Works say, one Work at a time.
type worker struct {
	hub     *hub
	records *records
	applier *applier
	secrets *secrets
	watcher *watcher
	pods    *pods
	halt    *halt
	cluster string
	// all makes every Work be looked at, after the halt has changed.
	all func(context.Context)

	digests sync.Map // by Work
}

// digests are what this agent applied, by objectKey, for one position of a Work.
type digests struct {
	position string
	of       map[string]string
}

// reconcile looks at one Work; later is when to do so again, 0 for not before something
// happens.
func (w *worker) reconcile(ctx context.Context, name string) (later time.Duration, err error) {
	work, filled := w.hub.get(ctx, name)
	rec := w.records.get(name)
	if filled { // before that, only the Works that have come are known
		w.judge(ctx, name)
	}
	switch {
	case work == nil && rec == nil && !filled:
		return retryFirst, nil // its event came before the cache says that it has all
	case work == nil && rec == nil:
		w.hub.last.Delete(name)
		return 0, nil
	case work != nil && rec != nil && !fits(work, rec):
		return w.halted(ctx, work, rec)
	case ordered(work, rec):
		return w.removal(ctx, work, rec)
	case work != nil && rec == nil:
		if other := w.anyHalted(ctx); other != "" {
			return w.wait(ctx, work, "new objects wait", other)
		}
	}
	if work != nil && (rec == nil || changed(work, rec)) {
		if rec, err = w.records.putSpec(ctx, name, work.Spec, ""); err != nil {
			return w.rejected(ctx, work, err)
		}
	}
	if rec.Spec.Work.Removal != nil {
		return w.recordedOrder(ctx, work, rec, filled)
	}
	return w.uphold(ctx, work, rec, filled)
}

// recordedOrder carries out an order that came before its Work was lost.
func (w *worker) recordedOrder(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork, filled bool) (time.Duration, error) {
	switch {
	case !filled:
		return 0, nil // the hub may have taken it back
	case w.anyHalted(ctx) != "":
		return slowRecheck, nil
	}
	return w.carryOut(ctx, work, rec)
}

// judge notes whether a Work fits its record, by what the cache has of it now, and lets every
// Work be looked at when others may go on now, or must wait now. Each Work that has come or
// changed is judged before any order that came after it is carried out.
func (w *worker) judge(ctx context.Context, name string) {
	changed := w.halt.update(name, func() bool {
		work, rec := w.hub.peek(ctx, name), w.records.get(name)
		return work != nil && rec != nil && !fits(work, rec)
	})
	if changed {
		w.all(ctx)
	}
}

// anyHalted names a Work that does not fit its record; "" when there is none. It compares the
// positions of all Works: when the hub was restored while the agent ran, the cache has all Works
// at once, and judge gets them one after the other.
func (w *worker) anyHalted(ctx context.Context) string {
	if name, all := w.halt.first(); all > 0 {
		return name
	}
	works, err := w.hub.works(ctx)
	if err != nil {
		log(ctx).Error(err, "Failed to list the Works that may not fit their records")
		return "(unknown)"
	}
	for i := range works {
		rec := w.records.get(works[i].Name)
		if rec != nil && !follows(&works[i].Spec, &rec.Spec.Work) {
			return works[i].Name
		}
	}
	return ""
}

// halted reports a Work that does not fit its record, and applies the record, unless a person has
// answered.
func (w *worker) halted(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (time.Duration, error) {
	if take := answerTo(work, rec); take != "" {
		return w.resume(ctx, take, work, rec)
	}
	if rec.Spec.Work.Removal == nil {
		return w.uphold(ctx, work, rec, true)
	}
	applied, halted := mismatch(w.cluster, work, rec) // what was removed already is not made again
	return w.reportApplied(ctx, work, applied, halted)
}

// resume carries out a person's answer: the record gets the Work's position, with what the hub
// says or with what the cluster has.
func (w *worker) resume(ctx context.Context, take string, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (time.Duration, error) {
	spec, mark := resumed(take, work, rec), ""
	if err := w.applier.namespaces.handOver(ctx, &rec.Spec.Work, &spec); err != nil {
		return 0, err
	}
	if take == v1alpha1.TakeCluster {
		mark = v1alpha1.TakeCluster + ":" + spec.Position()
	}
	if _, err := w.records.putSpec(ctx, work.Name, spec, mark); err != nil {
		return w.rejected(ctx, work, err)
	}
	w.digests.Delete(work.Name) // the same position may have had another content
	w.judge(ctx, work.Name)
	log(ctx).Info("Resumed a Work that did not fit its record", "work", work.Name, "take", take, "record", rec.Spec.Work.Position())
	return settleTime, nil
}

// wait reports that a Work is not carried out while another one does not fit its record.
func (w *worker) wait(ctx context.Context, work *v1alpha1.Work, what, halted string) (time.Duration, error) {
	later, err := w.reportApplied(ctx, work, condition(v1alpha1.ConditionApplied, false, v1alpha1.ConditionHubMismatch, fmt.Sprintf(
		"%s: Work %s does not fit this cluster's record: the hub was restored, or is another one. Run at the hub: kubectl patchbay hub resume --in %s",
		what, halted, w.cluster)), &v1alpha1.HaltedWork{})
	return cmp.Or(later, slowRecheck), err
}

// rejected reports why a Work was not taken over into the record.
func (w *worker) rejected(ctx context.Context, work *v1alpha1.Work, err error) (time.Duration, error) {
	if r, ok := errors.AsType[*refusal](err); ok {
		return w.reportApplied(ctx, work, condition(v1alpha1.ConditionApplied, false, r.reason, r.message), nil)
	}
	return 0, err
}

// reportApplied reports why a Work is not carried out, and leaves the rest of its status.
func (w *worker) reportApplied(ctx context.Context, work *v1alpha1.Work, applied metav1.Condition, halted *v1alpha1.HaltedWork) (time.Duration, error) {
	status := *work.Status.DeepCopy()
	status.Halted = halted
	meta.SetStatusCondition(&status.Conditions, applied)
	return w.hub.report(ctx, work, status)
}

// permanent tells whether an error needs no prompt retry: a person must act.
func permanent(err error) bool {
	var r *refusal
	return errors.As(err, &r) || apierrors.IsForbidden(err)
}
