// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

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

// uphold applies what the record says, and reports it.
func (w *worker) uphold(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork, filled bool) (time.Duration, error) {
	next := rec.DeepCopy()
	spec := next.Spec.Work
	stored, _ := w.digests.Load(rec.Name)
	old, _ := stored.(digests)
	if old.position != spec.Position() {
		old.of = nil // of another manifest
	}
	fresh := digests{position: spec.Position(), of: map[string]string{}}
	status := v1alpha1.WorkStatus{Term: spec.Term, Revision: spec.Revision}
	var errs []error
	for _, m := range spec.Manifests {
		ms, err := w.manifest(ctx, work, next, m, old, fresh)
		if err != nil {
			errs = append(errs, err)
		}
		status.Manifests = append(status.Manifests, ms)
	}
	w.digests.Store(rec.Name, fresh)
	applied := appliedCondition(errs)
	if err := w.secrets.copy(ctx, next); err != nil {
		errs = append(errs, err) // to try again; the object is there
	}
	next.Status.Revision = spec.Revision
	mismatched := condition(v1alpha1.ConditionHubMismatch, false, v1alpha1.ReasonSettled, "")
	if work != nil && !fits(work, rec) {
		applied, status.Halted = mismatch(w.cluster, work, rec)
		mismatched = applied
		mismatched.Type, mismatched.Status = v1alpha1.ConditionHubMismatch, metav1.ConditionTrue
	}
	meta.SetStatusCondition(&next.Status.Conditions, applied)
	if mismatched.Status == metav1.ConditionTrue {
		meta.SetStatusCondition(&next.Status.Conditions, mismatched)
	} else {
		meta.RemoveStatusCondition(&next.Status.Conditions, v1alpha1.ConditionHubMismatch)
	}
	switch {
	case work != nil:
		meta.RemoveStatusCondition(&next.Status.Conditions, v1alpha1.ConditionOrphaned)
	case filled:
		meta.SetStatusCondition(&next.Status.Conditions, condition(v1alpha1.ConditionOrphaned, true, v1alpha1.ConditionOrphaned,
			"the hub's Work is gone without an order to remove anything: the objects are kept and repaired"))
	}
	if !same(rec.Status, next.Status) {
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
		if later == 0 && slices.ContainsFunc(status.Manifests, w.unusedClaims) { // which may be deleted
			later = slowRecheck
		}
	}
	return later, errors.Join(errs...)
}

// manifest upholds one object, and says what became of it in record and report.
func (w *worker) manifest(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork, m v1alpha1.Manifest,
	old, fresh digests,
) (v1alpha1.ManifestStatus, error) {
	spec := rec.Spec.Work
	t, err := readManifest(spec, m)
	if err != nil {
		err = &refusal{reason: v1alpha1.ReasonRefused, message: err.Error()}
		return v1alpha1.ManifestStatus{Kind: "unknown", Name: m.Resource, Conditions: []metav1.Condition{manifestCondition(err)}}, err
	}
	entry := t.entry(rec)
	before := t.told(work)
	k := known{digest: old.of[t.key()], told: before.UID != ""}
	if entry != nil {
		k.uid = entry.UID
	}
	out := outcome{}
	if err = w.secrets.fill(ctx, rec.Name, t, m.Secret); err != nil && (keeps(rec) || work != nil && !fits(work, rec)) {
		err = w.keepData(ctx, t, k.uid, err)
	}
	if err == nil {
		out, err = w.applier.ensure(ctx, t, &spec, k)
	}
	var unread types.UID // of an object that is not to be read, and not known to be gone
	if uid := cmp.Or(k.uid, before.UID); err != nil && out.live == nil && uid != "" {
		var readErr error // err has more to say
		if out.live, readErr = w.applier.read(ctx, t); readErr != nil && !w.applier.namespaces.gone(ctx, t.object.GetNamespace()) {
			unread = uid
		}
	}
	if out.live != nil && err == nil {
		entry = remember(rec, t, out, entry)
		fresh.of[t.key()] = digest(out.live, owned(out.live))
		w.watcher.watch(ctx, t.gvr, t.object.GetNamespace())
		w.watcher.expect(t.gvr, out.live)
	}
	ms := w.manifestStatus(t, out.live, entry, spec.Associated, err)
	if out.live != nil && out.live.GetUID() == before.UID { // also without a record
		ms.UID = before.UID
	}
	ms.UID = cmp.Or(ms.UID, unread) // the hub is not to take it for never made
	ms.VolumeClaims = w.volumeClaims(ctx, ms.UID, before)
	if r, ok := errors.AsType[*refusal](err); ok && r.reason == v1alpha1.ReasonGone && k.told {
		ms = lastWords(ms, before)
	}
	return ms, err
}

// keepData gives a target the data that the cluster's Secret has from the hub, if it is the recorded
// object. The record stays in force there, and the hub may have its data no more. why is why they
// are not to be had, if the Secret is not there either.
func (w *worker) keepData(ctx context.Context, t target, uid types.UID, why error) error {
	live, err := w.applier.read(ctx, t)
	if err != nil {
		return refused(t, err)
	}
	if live == nil || live.GetUID() != uid {
		return why
	}
	data, _, _ := unstructured.NestedMap(live.Object, "data")
	maps.DeleteFunc(data, func(key string, _ any) bool { return !owned(live).has([]string{"data", key}) })
	if len(data) > 0 {
		t.object.Object["data"] = data
	}
	return nil
}

// remember notes in the record which object the target is.
func remember(rec *v1alpha1.AppliedWork, t target, out outcome, entry *v1alpha1.AppliedObject) *v1alpha1.AppliedObject {
	if entry == nil {
		rec.Status.Objects = append(rec.Status.Objects, t.unmade())
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

// manifestStatus is the entry of one object in a report.
func (w *worker) manifestStatus(t target, live *unstructured.Unstructured, entry *v1alpha1.AppliedObject,
	associated v1alpha1.AssociatedMode, err error,
) v1alpha1.ManifestStatus {
	ms := v1alpha1.ManifestStatus{
		Group: t.gvr.Group, Kind: t.object.GetKind(), Namespace: t.object.GetNamespace(), Name: t.object.GetName(),
		Conditions: []metav1.Condition{manifestCondition(err)},
	}
	if entry != nil {
		ms.AppliedGeneration, ms.SourceGeneration = entry.AppliedGeneration, entry.SourceGeneration
	}
	if live == nil || entry == nil || live.GetUID() != entry.UID {
		return ms
	}
	ms.UID, ms.Generation = live.GetUID(), live.GetGeneration()
	if n, found, err := unstructured.NestedInt64(live.Object, "spec", "replicas"); found && err == nil {
		replicas := int32(n)
		ms.Replicas = &replicas
	}
	ms.Status, ms.Truncated = exactStatus(live)
	ms.Ready = ready(live)
	if associated != v1alpha1.AssociatedNone && runsPods(live) {
		ms.Associated = w.pods.of(live.GetUID())
	}
	return ms
}

// lastWords keeps what was told of an object that is gone and does not run again: whether
// it had done its work, and that there was one.
func lastWords(now, before v1alpha1.ManifestStatus) v1alpha1.ManifestStatus {
	now.UID, now.Generation, now.Status = before.UID, before.Generation, before.Status
	now.AppliedGeneration, now.SourceGeneration = before.AppliedGeneration, before.SourceGeneration
	return now
}

// maxClaims is how many claims a report names.
const maxClaims = 16

// volumeClaims names the claims that Pods of an object use. Those that were reported before stay
// while they are there: an operator that restarts all its Pods keeps its data.
func (w *worker) volumeClaims(ctx context.Context, uid types.UID, before v1alpha1.ManifestStatus) []string {
	if uid == "" {
		return nil
	}
	found := w.pods.claims(uid)
	for _, claim := range before.VolumeClaims {
		if before.UID == uid && !found[claim] {
			found[claim] = !w.applier.noClaim(ctx, claim)
		}
	}
	maps.DeleteFunc(found, func(_ string, there bool) bool { return !there })
	names := slices.Sorted(maps.Keys(found))
	return names[:min(len(names), maxClaims)]
}

// unusedClaims tells whether a report names claims that no Pod uses now.
func (w *worker) unusedClaims(ms v1alpha1.ManifestStatus) bool {
	used := w.pods.claims(ms.UID)
	return slices.ContainsFunc(ms.VolumeClaims, func(claim string) bool { return !used[claim] })
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
