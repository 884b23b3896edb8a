// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

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
