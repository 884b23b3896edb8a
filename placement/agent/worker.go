// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// works is the hub as the agent's cache has it.
type works interface {
	// get returns the Work, nil when there is none, and whether the cache has been
	// filled at all: before that a missing Work means nothing.
	get(name string) (work *v1alpha1.Work, known bool)
}

// reporter tells the hub what became of a Work.
type reporter interface {
	// report writes the status, unless the Work has it already; later says when to
	// come again, when it is too early for another report.
	report(ctx context.Context, work *v1alpha1.Work, status v1alpha1.WorkStatus) (later time.Duration, err error)
}

// worker brings the cluster to what the Works say, one Work at a time.
type worker struct {
	works   works
	hub     reporter
	records *records
	applier *applier
	watcher *watcher
	pods    *pods
	halt    *halt
	// all makes every Work be looked at, after the halt has changed.
	all func(context.Context)

	mu      sync.Mutex
	digests map[string]digests // by Work
}

// digests are what this agent applied, by objectKey, for one revision of a Work.
type digests struct {
	revision int64
	of       map[string]string
}

// reconcile looks at one Work; later is when to do so again, 0 for not before something
// happens.
func (w *worker) reconcile(ctx context.Context, name string) (later time.Duration, err error) {
	work, filled := w.works.get(name)
	rec := w.records.get(name)
	w.judge(ctx, name, work, rec)
	why := w.halt.why()
	switch {
	case work == nil && rec == nil:
		return 0, nil
	case why != "":
		return w.standStill(ctx, work, rec, why)
	case work != nil && work.Spec.Removal != nil:
		return w.removal(ctx, work, rec)
	}
	if work != nil && (rec == nil || !sameSpec(rec.Spec.Work, work.Spec)) {
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

// uphold applies what the record says, and reports it.
func (w *worker) uphold(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork, filled bool) (time.Duration, error) {
	next := rec.DeepCopy()
	spec := next.Spec.Work
	old := w.knownDigests(rec.Name, spec.Revision)
	fresh := digests{revision: spec.Revision, of: map[string]string{}}
	status := v1alpha1.WorkStatus{Revision: spec.Revision}
	var errs []error
	for _, m := range spec.Manifests {
		ms, err := w.manifest(ctx, next, m, old, fresh)
		if err != nil {
			errs = append(errs, err)
		}
		status.Manifests = append(status.Manifests, ms)
	}
	w.setDigests(rec.Name, fresh)
	applied := appliedCondition(errs)
	next.Status.Revision = spec.Revision
	meta.SetStatusCondition(&next.Status.Conditions, applied)
	meta.RemoveStatusCondition(&next.Status.Conditions, v1alpha1.ConditionHubMismatch)
	orphaned(&next.Status.Conditions, work == nil && filled, work != nil)
	if !sameStatus(rec.Status, next.Status) {
		if err := w.records.putStatus(ctx, next); err != nil {
			return 0, err
		}
	}
	var later time.Duration
	if work != nil {
		status.Conditions = []metav1.Condition{applied, readyCondition(status.Manifests)}
		var err error
		if later, err = w.hub.report(ctx, work, status); err != nil {
			errs = append(errs, err)
		}
	}
	return later, errors.Join(errs...)
}

// manifest upholds one object, and says what became of it in record and report.
func (w *worker) manifest(ctx context.Context, rec *v1alpha1.AppliedWork, m v1alpha1.Manifest, old, fresh digests) (v1alpha1.ManifestStatus, error) {
	spec := rec.Spec.Work
	t, err := readManifest(spec, m)
	if err != nil {
		err = &refusal{v1alpha1.ReasonRefused, err.Error()}
		return v1alpha1.ManifestStatus{Kind: "unknown", Name: m.Resource, Conditions: []metav1.Condition{manifestCondition(err)}}, err
	}
	entry := t.entry(rec)
	k := known{digest: old.of[t.key()]}
	if entry != nil {
		k.uid = entry.UID
	}
	out, err := w.applier.ensure(ctx, t, spec.Apply, k)
	if out.live != nil && err == nil {
		entry = remember(rec, t, out, entry)
		fresh.of[t.key()] = digest(out.live, owned(out.live))
		w.watcher.watch(ctx, t.gvr)
	}
	return w.manifestStatus(t, out.live, entry, spec.Associated, err), err
}

// remember notes in the record which object the target is.
func remember(rec *v1alpha1.AppliedWork, t target, out outcome, entry *v1alpha1.AppliedObject) *v1alpha1.AppliedObject {
	if entry == nil {
		rec.Status.Objects = append(rec.Status.Objects, v1alpha1.AppliedObject{
			Group: t.gvr.Group, Resource: t.gvr.Resource, Namespace: t.object.GetNamespace(), Name: t.object.GetName(),
		})
		entry = &rec.Status.Objects[len(rec.Status.Objects)-1]
	}
	entry.Version, entry.Kind, entry.UID = t.gvr.Version, t.object.GetKind(), out.live.GetUID()
	// The generation right after the apply that brought this generation of the source: a
	// later apply that only repairs must not hide a status that speaks of it.
	if out.applied || entry.AppliedGeneration == 0 {
		entry.AppliedGeneration = out.live.GetGeneration()
	}
	entry.SourceGeneration = rec.Spec.Work.SourceGeneration
	return entry
}

// orphaned notes whether the hub's Work is gone without an order.
func orphaned(conditions *[]metav1.Condition, gone, there bool) {
	if gone {
		meta.SetStatusCondition(conditions, condition(v1alpha1.ConditionOrphaned, true, v1alpha1.ConditionOrphaned,
			"the hub's Work is gone without an order to remove anything: the objects are kept and repaired"))
	}
	if there {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionOrphaned)
	}
}

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
	if !sameSpec(rec.Spec.Work, work.Spec) {
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
	w.forgetDigests(rec.Name)
	logr.FromContextOrDiscard(ctx).Info("Removed what the hub ordered", "work", rec.Name, "policy", rec.Spec.Work.Removal.Policy)
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

// permanent tells whether an error needs no prompt retry: somebody must mend something.
func permanent(err error) bool {
	var r *refusal
	return errors.As(err, &r) || apierrors.IsForbidden(err)
}

func (w *worker) knownDigests(name string, revision int64) digests {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.digests[name]; d.revision == revision {
		return d
	}
	return digests{}
}

func (w *worker) setDigests(name string, d digests) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.digests[name] = d
}

func (w *worker) forgetDigests(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.digests, name)
}
