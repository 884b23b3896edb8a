// SPDX-License-Identifier: Apache-2.0

package works

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

// workReconciler brings the cluster to what the Works say, one Work at a time.
type workReconciler struct {
	hub         *hubClient
	records     *appliedWorks
	applier     *objectApplier
	secrets     *secretDataCache
	watcher     *objectWatcher
	pods        *podIndex
	haltedWorks *haltedWorks
	clusterName string
	// enqueueAll makes every Work be looked at, after the halt has changed.
	enqueueAll func(context.Context)

	digests sync.Map // by Work
}

// appliedDigests are what this agent applied, by objectKey, for one position of a Work.
type appliedDigests struct {
	position string
	byObject map[string]string
}

// reconcile looks at one Work; later is when to do so again, 0 for not before something
// happens.
func (w *workReconciler) reconcile(ctx context.Context, name string) (later time.Duration, err error) {
	work, filled := w.hub.syncedWork(ctx, name)
	rec := w.records.get(name)
	if filled { // before that, only the Works that have come are known
		w.updateHalted(ctx, name)
	}
	switch {
	case work == nil && rec == nil && !filled:
		return minRetryDelay, nil // its event came before the cache says that it has all
	case work == nil && rec == nil:
		w.hub.lastReports.Delete(name)
		return 0, nil
	case work != nil && rec != nil && !matchesRecord(work, rec):
		return w.reconcileHalted(ctx, work, rec)
	case isRemovalRequested(work, rec):
		return w.acceptRemoval(ctx, work, rec)
	case work != nil && rec == nil:
		if other := w.anyHalted(ctx); other != "" {
			return w.reportWaiting(ctx, work, "new objects wait", other)
		}
	}
	if work != nil && (rec == nil || isSpecChanged(work, rec)) {
		if rec, err = w.records.saveSpec(ctx, name, work.Spec, ""); err != nil {
			return w.reportRejected(ctx, work, err)
		}
	}
	if rec.Spec.Work.Removal != nil {
		return w.reconcileRecordedRemoval(ctx, work, rec, filled)
	}
	return w.applyRecord(ctx, work, rec, filled)
}

// reconcileRecordedRemoval carries out an order that came before its Work was lost.
func (w *workReconciler) reconcileRecordedRemoval(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork, filled bool) (time.Duration, error) {
	switch {
	case !filled:
		return 0, nil // the hub may have taken it back
	case w.anyHalted(ctx) != "":
		return blockedCheckInterval, nil
	}
	return w.executeRemoval(ctx, work, rec)
}

// updateHalted notes whether a Work fits its record, by what the cache has of it now, and lets every
// Work be looked at when others may go on now, or must wait now. Each Work that has come or
// changed is judged before any order that came after it is carried out.
func (w *workReconciler) updateHalted(ctx context.Context, name string) {
	changed := w.haltedWorks.update(name, func() bool {
		work, rec := w.hub.cachedWork(ctx, name), w.records.get(name)
		return work != nil && rec != nil && !matchesRecord(work, rec)
	})
	if changed {
		w.enqueueAll(ctx)
	}
}

// anyHalted names a Work that does not fit its record; "" when there is none. It compares the
// positions of all Works: when the hub was restored while the agent ran, the cache has all Works
// at once, and judge gets them one after the other.
func (w *workReconciler) anyHalted(ctx context.Context) string {
	if name, all := w.haltedWorks.first(); all > 0 {
		return name
	}
	works, err := w.hub.listWorks(ctx)
	if err != nil {
		log(ctx).Error(err, "Failed to list the Works that may not fit their records")
		return "(unknown)"
	}
	for i := range works {
		rec := w.records.get(works[i].Name)
		if rec != nil && !continuesHistory(&works[i].Spec, &rec.Spec.Work) {
			return works[i].Name
		}
	}
	return ""
}

// reconcileHalted reports a Work that does not fit its record, and applies the record, unless a person has
// answered.
func (w *workReconciler) reconcileHalted(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (time.Duration, error) {
	if take := resumeAnswer(work, rec); take != "" {
		return w.resume(ctx, take, work, rec)
	}
	if rec.Spec.Work.Removal == nil {
		return w.applyRecord(ctx, work, rec, true)
	}
	applied, halted := mismatchReport(w.clusterName, work, rec) // what was removed already is not made again
	return w.reportNotApplied(ctx, work, applied, halted)
}

// resume carries out a person's answer: the record gets the Work's position, with what the hub
// says or with what the cluster has.
func (w *workReconciler) resume(ctx context.Context, take string, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (time.Duration, error) {
	spec, mark := resumedSpec(take, work, rec), ""
	if err := w.applier.namespaces.transferToHub(ctx, &rec.Spec.Work, &spec); err != nil {
		return 0, err
	}
	if take == v1alpha1.TakeCluster {
		mark = v1alpha1.TakeCluster + ":" + spec.Position()
	}
	if _, err := w.records.saveSpec(ctx, work.Name, spec, mark); err != nil {
		return w.reportRejected(ctx, work, err)
	}
	w.digests.Delete(work.Name) // the same position may have had another content
	w.updateHalted(ctx, work.Name)
	log(ctx).Info("Resumed a Work that did not fit its record", "work", work.Name, "take", take, "record", rec.Spec.Work.Position())
	return batchDelay, nil
}

// applyRecord applies what the record says, and reports it.
func (w *workReconciler) applyRecord(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork, filled bool) (time.Duration, error) {
	next := rec.DeepCopy()
	spec := next.Spec.Work
	stored, _ := w.digests.Load(rec.Name)
	old, _ := stored.(appliedDigests)
	if old.position != spec.Position() {
		old.byObject = nil // of another manifest
	}
	fresh := appliedDigests{position: spec.Position(), byObject: map[string]string{}}
	status := v1alpha1.WorkStatus{Term: spec.Term, Revision: spec.Revision}
	var errs []error
	for _, m := range spec.Manifests {
		ms, err := w.applyManifest(ctx, work, next, m, old, fresh)
		if err != nil {
			errs = append(errs, err)
		}
		status.Manifests = append(status.Manifests, ms)
	}
	w.digests.Store(rec.Name, fresh)
	applied := appliedCondition(errs)
	if err := w.secrets.saveCopy(ctx, next); err != nil {
		errs = append(errs, err) // to try again; the object is there
	}
	next.Status.Revision = spec.Revision
	mismatched := newCondition(v1alpha1.ConditionHubMismatch, false, v1alpha1.ReasonAsExpected, "")
	if work != nil && !matchesRecord(work, rec) {
		applied, status.Halted = mismatchReport(w.clusterName, work, rec)
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
		meta.SetStatusCondition(&next.Status.Conditions, newCondition(v1alpha1.ConditionOrphaned, true, v1alpha1.ConditionOrphaned,
			"the hub's Work is gone without an order to remove anything: the objects are kept and repaired"))
	}
	if !equalAsJSON(rec.Status, next.Status) {
		if err := w.records.saveStatus(ctx, next); err != nil {
			return 0, err
		}
	}
	var later time.Duration
	if work != nil {
		status.Conditions = []metav1.Condition{applied, readyCondition(status.Manifests)}
		var err error
		if later, err = w.hub.reportStatus(ctx, work, status); err != nil {
			errs = append(errs, err)
		}
		if later == 0 && slices.ContainsFunc(status.Manifests, w.hasUnusedVolumeClaims) { // which may be deleted
			later = blockedCheckInterval
		}
	}
	return later, errors.Join(errs...)
}

// applyManifest upholds one object, and says what became of it in record and report.
func (w *workReconciler) applyManifest(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork, m v1alpha1.Manifest,
	old, fresh appliedDigests,
) (v1alpha1.ManifestStatus, error) {
	spec := rec.Spec.Work
	t, err := parseManifest(spec, m)
	if err != nil {
		err = &conditionError{reason: v1alpha1.ReasonRefused, message: err.Error()}
		return v1alpha1.ManifestStatus{Kind: "unknown", Name: m.Resource, Conditions: []metav1.Condition{manifestCondition(err)}}, err
	}
	entry := t.recordEntry(rec)
	before := t.lastReport(work)
	k := priorState{digest: old.byObject[t.key()], reported: before.UID != ""}
	if entry != nil {
		k.uid = entry.UID
	}
	out := applyResult{}
	if err = w.secrets.inject(ctx, rec.Name, t, m.Secret); err != nil && (keepsClusterManifests(rec) || work != nil && !matchesRecord(work, rec)) {
		err = w.useLiveSecretData(ctx, t, k.uid, err)
	}
	if err == nil {
		out, err = w.applier.apply(ctx, t, &spec, k)
	}
	var unread types.UID // of an object that is not to be read, and not known to be gone
	if uid := cmp.Or(k.uid, before.UID); err != nil && out.live == nil && uid != "" {
		var readErr error // err has more to say
		if out.live, readErr = w.applier.readLive(ctx, t); readErr != nil && !w.applier.namespaces.isGone(ctx, t.object.GetNamespace()) {
			unread = uid
		}
	}
	if out.live != nil && err == nil {
		entry = recordAppliedObject(rec, t, out, entry)
		fresh.byObject[t.key()] = fieldsDigest(out.live, agentFields(out.live))
		w.watcher.ensureWatch(ctx, t.gvr, t.object.GetNamespace())
		w.watcher.expect(t.gvr, out.live)
	}
	ms := w.manifestStatus(t, out.live, entry, spec.Associated, err)
	if out.live != nil && out.live.GetUID() == before.UID { // also without a record
		ms.UID = before.UID
	}
	ms.UID = cmp.Or(ms.UID, unread) // the hub is not to take it for never made
	ms.VolumeClaims = w.volumeClaims(ctx, ms.UID, before)
	if r, ok := errors.AsType[*conditionError](err); ok && r.reason == v1alpha1.ReasonDeletedInCluster && k.reported {
		ms = keepLastReport(ms, before)
	}
	return ms, err
}

// useLiveSecretData gives a target the data that the cluster's Secret has from the hub, if it is the recorded
// object. The record stays in force there, and the hub may have its data no more. why is why they
// are not to be had, if the Secret is not there either.
func (w *workReconciler) useLiveSecretData(ctx context.Context, t desiredObject, uid types.UID, why error) error {
	live, err := w.applier.readLive(ctx, t)
	if err != nil {
		return asConditionError(t, err)
	}
	if live == nil || live.GetUID() != uid {
		return why
	}
	data, _, _ := unstructured.NestedMap(live.Object, "data")
	maps.DeleteFunc(data, func(key string, _ any) bool { return !agentFields(live).has([]string{"data", key}) })
	if len(data) > 0 {
		t.object.Object["data"] = data
	}
	return nil
}

// recordAppliedObject notes in the record which object the target is.
func recordAppliedObject(rec *v1alpha1.AppliedWork, t desiredObject, out applyResult, entry *v1alpha1.AppliedObject) *v1alpha1.AppliedObject {
	if entry == nil {
		rec.Status.Objects = append(rec.Status.Objects, t.newRecordEntry())
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
func (w *workReconciler) manifestStatus(t desiredObject, live *unstructured.Unstructured, entry *v1alpha1.AppliedObject,
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
	ms.Status, ms.Truncated = reportedStatus(live)
	ms.Ready = isReady(live)
	if associated != v1alpha1.AssociatedNone && runsPods(live) {
		ms.Associated = w.pods.associated(live.GetUID())
	}
	return ms
}

// keepLastReport keeps what was told of an object that is gone and does not run again: whether
// it had done its work, and that there was one.
func keepLastReport(now, before v1alpha1.ManifestStatus) v1alpha1.ManifestStatus {
	now.UID, now.Generation, now.Status = before.UID, before.Generation, before.Status
	now.AppliedGeneration, now.SourceGeneration = before.AppliedGeneration, before.SourceGeneration
	return now
}

// maxVolumeClaims is how many claims a report names.
const maxVolumeClaims = 16

// volumeClaims names the claims that Pods of an object use. Those that were reported before stay
// while they are there: an operator that restarts all its Pods keeps its data.
func (w *workReconciler) volumeClaims(ctx context.Context, uid types.UID, before v1alpha1.ManifestStatus) []string {
	if uid == "" {
		return nil
	}
	found := w.pods.volumeClaims(uid)
	for _, claim := range before.VolumeClaims {
		if before.UID == uid && !found[claim] {
			found[claim] = !w.applier.isVolumeClaimMissing(ctx, claim)
		}
	}
	maps.DeleteFunc(found, func(_ string, there bool) bool { return !there })
	names := slices.Sorted(maps.Keys(found))
	return names[:min(len(names), maxVolumeClaims)]
}

// hasUnusedVolumeClaims tells whether a report names claims that no Pod uses now.
func (w *workReconciler) hasUnusedVolumeClaims(ms v1alpha1.ManifestStatus) bool {
	used := w.pods.volumeClaims(ms.UID)
	return slices.ContainsFunc(ms.VolumeClaims, func(claim string) bool { return !used[claim] })
}

// reportWaiting reports that a Work is not carried out while another one does not fit its record.
func (w *workReconciler) reportWaiting(ctx context.Context, work *v1alpha1.Work, what, halted string) (time.Duration, error) {
	later, err := w.reportNotApplied(ctx, work, newCondition(v1alpha1.ConditionApplied, false, v1alpha1.ConditionHubMismatch, fmt.Sprintf(
		"%s: Work %s does not fit this cluster's record: the hub was restored, or is another one. Run at the hub: kubectl patchbay hub resume --in %s",
		what, halted, w.clusterName)), &v1alpha1.HaltedWork{})
	return cmp.Or(later, blockedCheckInterval), err
}

// reportRejected reports why a Work was not taken over into the record.
func (w *workReconciler) reportRejected(ctx context.Context, work *v1alpha1.Work, err error) (time.Duration, error) {
	if r, ok := errors.AsType[*conditionError](err); ok {
		return w.reportNotApplied(ctx, work, newCondition(v1alpha1.ConditionApplied, false, r.reason, r.message), nil)
	}
	return 0, err
}

// reportNotApplied reports why a Work is not carried out, and leaves the rest of its status.
func (w *workReconciler) reportNotApplied(ctx context.Context, work *v1alpha1.Work, applied metav1.Condition, halted *v1alpha1.HaltedWork) (time.Duration, error) {
	status := *work.Status.DeepCopy()
	status.Halted = halted
	meta.SetStatusCondition(&status.Conditions, applied)
	return w.hub.reportStatus(ctx, work, status)
}
