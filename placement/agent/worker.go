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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	w.judge(ctx, name)
	switch {
	case work == nil && rec == nil && !filled:
		return retryFirst, nil // its event came before the cache says that it has all
	case work == nil && rec == nil:
		w.hub.last.Delete(name)
		return 0, nil
	}
	if work == nil || rec == nil || fits(work, rec) {
		return w.carry(ctx, name, work, rec, filled)
	}
	switch take := answerTo(work, rec); {
	case take == v1alpha1.TakeHub || take == v1alpha1.TakeCluster:
		return settleTime, w.resume(ctx, take, work, rec)
	case rec.Spec.Work.Removal != nil: // what is removed already is not made again
		applied, halted := w.mismatch(work, rec)
		return w.refuse(ctx, work, applied, halted)
	}
	return w.uphold(ctx, work, rec, filled)
}

// carry carries out a Work that fits its record, or the record alone.
func (w *worker) carry(ctx context.Context, name string, work *v1alpha1.Work, rec *v1alpha1.AppliedWork, filled bool) (time.Duration, error) {
	ordered := orders(work, rec)
	halted := w.anyHalted(ctx, ordered || rec != nil && rec.Spec.Work.Removal != nil)
	switch {
	case work != nil && halted != "" && (rec == nil || ordered):
		return w.wait(ctx, work, halted)
	case ordered:
		return w.removal(ctx, work, rec)
	}
	if work != nil && (rec == nil || changed(work, rec)) {
		var err error
		if rec, err = w.records.putSpec(ctx, name, work.Spec, ""); err != nil {
			return 0, err
		}
	}
	if rec.Spec.Work.Removal != nil { // the order came before the hub went away
		if !filled || halted != "" {
			return 0, nil // the hub may have taken it back, or have been restored since
		}
		return w.carryOut(ctx, work, rec)
	}
	return w.uphold(ctx, work, rec, filled)
}

// judge notes whether a Work fits its record, by what the cache has of it now, and lets every
// Work be looked at when others may go on now, or must wait. A Work that has come or changed is
// judged before any order that came after it is carried out.
func (w *worker) judge(ctx context.Context, name string) {
	if w.halt.update(name, func() bool {
		work, rec := w.hub.peek(ctx, name), w.records.get(name)
		return work != nil && rec != nil && !fits(work, rec)
	}) {
		w.all(ctx)
	}
}

// anyHalted names a Work that does not fit its record; "" when there is none. For a removal it
// compares the positions of all Works: of a hub that was restored while the agent ran the cache
// has them all at once, and judge gets them one after the other.
func (w *worker) anyHalted(ctx context.Context, removal bool) string {
	name, all := w.halt.first()
	if all > 0 || !removal {
		return name
	}
	for _, work := range w.hub.works(ctx) {
		if rec := w.records.get(work.Name); rec != nil && !follows(&work.Spec, &rec.Spec.Work) {
			return work.Name
		}
	}
	return ""
}

// resume carries out a person's answer: the record gets the Work's position, with what the hub
// says or with what the cluster has.
func (w *worker) resume(ctx context.Context, take string, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) error {
	spec, mark := resumed(take, work, rec), ""
	if err := w.applier.namespaces.handOver(ctx, &rec.Spec.Work, &spec); err != nil {
		return err
	}
	if take == v1alpha1.TakeCluster {
		mark = v1alpha1.TakeCluster + ":" + position(&spec)
	}
	if _, err := w.records.putSpec(ctx, work.Name, spec, mark); err != nil {
		return err
	}
	w.digests.Delete(work.Name) // they are of other manifests
	w.judge(ctx, work.Name)
	log(ctx).Info("Resumed a Work that did not fit its record", "work", work.Name, "take", take, "record", position(&rec.Spec.Work))
	return nil
}

// wait says that a Work is not carried out while another one does not fit its record.
func (w *worker) wait(ctx context.Context, work *v1alpha1.Work, halted string) (time.Duration, error) {
	what := "it is not begun"
	if work.Spec.Removal != nil {
		what = "nothing is removed"
	}
	return w.refuse(ctx, work, condition(v1alpha1.ConditionApplied, false, v1alpha1.ConditionHubMismatch, fmt.Sprintf(
		"%s while Work %s does not fit this cluster's record: the hub was restored, or is another one. Run at the hub: kubectl patchbay hub resume --in %s",
		what, halted, w.cluster)), &v1alpha1.HaltedWork{})
}

// refuse reports why a Work is not carried out, and leaves the rest of its status.
func (w *worker) refuse(ctx context.Context, work *v1alpha1.Work, applied metav1.Condition, halted *v1alpha1.HaltedWork) (time.Duration, error) {
	status := *work.Status.DeepCopy()
	status.Halted = halted
	meta.SetStatusCondition(&status.Conditions, applied)
	return w.hub.report(ctx, work, status)
}

// permanent tells whether an error needs no prompt retry: somebody must mend something.
func permanent(err error) bool {
	var r *refusal
	return errors.As(err, &r) || apierrors.IsForbidden(err)
}
