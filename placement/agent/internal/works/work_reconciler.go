// SPDX-License-Identifier: Apache-2.0

package works

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	danm "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/managedfields"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/objectwatcher"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/podindex"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/records"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/volumes"
)

// workReconciler applies Works in the cluster and reports on them.
type workReconciler struct {
	hub         *hubClient
	dynamic     dynamic.Interface
	records     *records.Store
	applier     *objectApplier
	remover     *workRemover
	secrets     *secretDataCache
	watcher     *objectwatcher.Watcher
	pods        *podindex.Index
	halted      *haltedWorks
	volumes     *volumes.Operator
	clusterName string
	pace        *heartbeatPace
	traffic     *serviceTraffic
	// refusedAfter is after how long replicas that the cluster does not run are reported.
	refusedAfter time.Duration
	// enqueueAll enqueues all Works.
	enqueueAll func(context.Context)

	digests   sync.Map // appliedDigests by Work
	creations sync.Map // creationResults by Work
}

// creationResults are the UIDs of the objects that this agent has created, by records.ObjectKey, as far as they run
// once; "" for one whose creation failed. The record may lack what came of it.
type creationResults map[string]types.UID

// appliedDigests are the digests of the fields that the agent applied, by records.ObjectKey, for one position
// of a Work.
type appliedDigests struct {
	position string
	byObject map[string]string
}

// reconcile applies, removes or halts one Work. later is when to reconcile it again; 0 is after the next
// event only.
func (w *workReconciler) reconcile(ctx context.Context, name string) (later time.Duration, err error) {
	work, synced := w.hub.syncedWork(ctx, name)
	rec := w.records.Get(name)
	if synced { // before that, the cache has only some of the Works
		w.updateHalted(ctx, name)
	}
	switch {
	case work == nil && rec == nil && !synced:
		return minRetryDelay, nil // its event came before the cache was synced
	case work == nil && rec == nil:
		w.hub.lastReports.Delete(name)
		return 0, nil
	case work != nil && rec != nil && !matchesRecord(work, rec):
		return w.reconcileHalted(ctx, work, rec)
	case isRemovalRequested(work, rec):
		return w.remover.acceptOrder(ctx, work, rec)
	case work != nil && rec == nil:
		if halted := w.halted.any(ctx); halted != "" {
			return w.hub.reportWaiting(ctx, work, "new objects wait", halted)
		}
	}
	if work != nil && (rec == nil || isSpecChanged(work, rec)) {
		w.pace.noteOrder()
		if rec, err = w.records.SaveSpec(ctx, name, work.Spec, ""); err != nil {
			return w.hub.reportRejected(ctx, work, err)
		}
	}
	if rec.Spec.Work.Removal != nil {
		return w.remover.resumeOrder(ctx, work, rec, synced)
	}
	return w.applyRecord(ctx, work, rec, synced)
}

// updateHalted compares a cached Work with its record, and enqueues all Works when others may continue now,
// or must wait now. The agent does so for each event of a Work, before it carries out an order of a later
// event.
func (w *workReconciler) updateHalted(ctx context.Context, name string) {
	if w.halted.update(ctx, name) {
		w.enqueueAll(ctx)
	}
}

// forget drops the cached state of a Work.
func (w *workReconciler) forget(name string) {
	w.digests.Delete(name)
	w.creations.Delete(name)
	w.secrets.forget(name)
}

// reconcileHalted reports a Work that does not match its record, and applies the record, unless a user has
// answered.
func (w *workReconciler) reconcileHalted(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (time.Duration, error) {
	if take := resumeAnswer(work, rec); take != "" {
		return w.resume(ctx, take, work, rec)
	}
	if rec.Spec.Work.Removal == nil {
		return w.applyRecord(ctx, work, rec, true)
	}
	applied, halted := mismatchReport(w.clusterName, work, rec) // removed objects are not created again
	return w.hub.reportNotApplied(ctx, work, applied, halted)
}

// resume carries out a user's answer: the record gets the Work's position, with the manifests of the hub
// or of the cluster.
func (w *workReconciler) resume(ctx context.Context, take string, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (time.Duration, error) {
	spec, mark := resumedSpec(take, work, rec), ""
	if err := w.applier.namespaces.transferToHub(ctx, &rec.Spec.Work, &spec); err != nil {
		return 0, err
	}
	if take == v1alpha1.TakeCluster {
		mark = v1alpha1.TakeCluster + ":" + spec.Position()
	}
	if _, err := w.records.SaveSpec(ctx, work.Name, spec, mark); err != nil {
		return w.hub.reportRejected(ctx, work, err)
	}
	w.digests.Delete(work.Name) // the same position may have had other manifests
	w.updateHalted(ctx, work.Name)
	log(ctx).Info("Resumed a halted Work", "work", work.Name, "take", take, "record", rec.Spec.Work.Position())
	return batchDelay, nil
}

// applyRecord applies the manifests of a record, stores the results in its status and reports them.
func (w *workReconciler) applyRecord(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork, synced bool) (time.Duration, error) {
	spec := &rec.Spec.Work
	results := w.applyManifests(ctx, work, rec)
	copyErr := w.secrets.saveCopy(ctx, rec)             // retried later: the objects exist
	if saved := w.records.Get(rec.Name); saved != nil { // it may have been written before a creation
		rec = saved
	}
	next := rec.DeepCopy()
	var report v1alpha1.WorkStatus
	next.Status, report = computeStatuses(w.clusterName, work, rec, results, synced)
	if !equalAsJSON(rec.Status, next.Status) {
		if err := w.records.SaveStatus(ctx, next); err != nil {
			return 0, err
		}
	}
	traffic := w.traffic.sync(ctx, work, rec, results)
	errs := append(resultErrors(results), copyErr, traffic.err)
	if work == nil {
		return traffic.later, errors.Join(errs...)
	}
	report.Term, report.Revision, report.Traffic = spec.Term, spec.Revision, traffic.status
	later, err := w.hub.reportStatus(ctx, work, report)
	later = soonest(later, traffic.later)
	for i := range results {
		later = soonest(later, results[i].refusedCheck)
	}
	for _, m := range report.Manifests {
		if w.hasUnusedVolumeClaims(m) { // a user may delete them
			later = soonest(later, blockedCheckInterval)
		}
		if isVolumeOnTheWay(spec, m) {
			later = soonest(later, volumes.PollInterval)
		}
	}
	return later, errors.Join(append(errs, err)...)
}

// soonest returns the shorter of two times until a check; 0 is none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// applyManifests applies the manifests of a record in their order. An error of one does not stop the
// others.
func (w *workReconciler) applyManifests(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) []manifestResult {
	position := rec.Spec.Work.Position()
	stored, _ := w.digests.Load(rec.Name)
	old, _ := stored.(appliedDigests)
	if old.position != position {
		old.byObject = nil // of other manifests
	}
	fresh := appliedDigests{position: position, byObject: map[string]string{}}
	var results []manifestResult
	for _, m := range rec.Spec.Work.Manifests {
		t, err := parseManifest(rec.Spec.Work, m)
		if err != nil {
			err = &conditionError{reason: v1alpha1.ReasonRefused, message: err.Error()}
			results = append(results, manifestResult{resource: m.Resource, err: err})
			continue
		}
		result := w.applyManifest(ctx, work, rec, t, m.Secret, old.byObject[t.key()])
		if result.digest != "" {
			fresh.byObject[t.key()] = result.digest
		}
		results = append(results, result)
	}
	w.digests.Store(rec.Name, fresh)
	return results
}

// applyManifest applies one object and reads what the report needs. digest is the one of the last apply.
func (w *workReconciler) applyManifest(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork, t desiredObject,
	secret *v1alpha1.SecretData, digest string,
) manifestResult {
	spec := &rec.Spec.Work
	result := manifestResult{object: t, entry: recordEntry(rec, t), before: lastReport(work, t)}
	prior := priorState{digest: digest, reported: result.before.UID != "", recordCreating: func(ctx context.Context) error {
		result.startedCreation = true
		return w.recordCreating(ctx, rec.Name, t)
	}}
	results, _ := w.creations.Load(rec.Name)
	own, _ := results.(creationResults)
	created, attempted := own[t.key()]
	if result.entry != nil {
		prior.uid, prior.creating = cmp.Or(result.entry.UID, created), result.entry.Creating && !attempted
	}
	if ordersVolume(spec, t) {
		prior.prepare = func(ctx context.Context) error { return w.prepareVolume(ctx, spec, t) }
	}
	err := w.secrets.inject(ctx, rec.Name, t, secret)
	if err != nil && (keepsClusterManifests(rec) || work != nil && !matchesRecord(work, rec)) {
		err = w.useLiveSecretData(ctx, t, prior.uid, err)
	}
	applied := applyResult{}
	if err == nil {
		applied, err = w.applier.apply(ctx, t, spec, prior)
	}
	result.live, result.err = applied.live, err
	if result.startedCreation {
		w.creations.Store(rec.Name, own.with(t.key(), applied.live))
	}
	if applied.live == nil && (prior.creating || result.startedCreation) {
		w.resolveCreation(ctx, rec, own, &result)
	}
	if uid := cmp.Or(prior.uid, result.before.UID); err != nil && applied.live == nil && uid != "" {
		result.live, result.unread = w.readAfterError(ctx, t, uid)
	}
	if err == nil && applied.live != nil {
		result.entry = appliedEntry(result.entry, t, applied, spec.SourceGeneration)
		result.digest = managedfields.Digest(applied.live, managedfields.OfAgent(applied.live))
		w.watcher.EnsureWatch(ctx, t.gvr, t.object.GetNamespace())
		w.watcher.Expect(t.gvr, applied.live)
	}
	if ordersVolume(spec, t) {
		result.volume = w.volumes.Apply(ctx, spec.Volume, claimOf(spec, t, result.uid()))
	}
	w.observe(ctx, spec, &result)
	return result
}

// observe reads what the cluster has of an object beside its fields: its Pods, and the claims that these use.
func (w *workReconciler) observe(ctx context.Context, spec *v1alpha1.WorkSpec, result *manifestResult) {
	result.autoscaled = isAutoscaled(result.live, spec)
	if result.isRecorded() {
		uid := result.live.GetUID()
		if spec.Associated != v1alpha1.AssociatedNone && runsPods(result.live) {
			result.associated = w.pods.Associated(uid)
		}
		result.refused, result.refusedCheck = refusedReplicas(result.live, w.pods.PodsOf(uid), time.Now(), w.refusedAfter)
	}
	result.volumeClaims = w.volumeClaims(ctx, result.uid(), result.before)
}

// isAutoscaled tells whether the agent leaves spec.replicas of a live object to another field manager.
func isAutoscaled(live *unstructured.Unstructured, spec *v1alpha1.WorkSpec) bool {
	if live == nil || !spec.Apply.YieldsReplicas() {
		return false
	}
	c, err := managedfields.FindCeded(live, spec.Apply)
	return err == nil && c.OmitsReplicas()
}

// with returns the results with one more, of an object that does not exist if live is nil.
func (r creationResults) with(key string, live *unstructured.Unstructured) creationResults {
	next := maps.Clone(r)
	if next == nil {
		next = creationResults{}
	}
	if next[key] = ""; live != nil {
		next[key] = live.GetUID()
	}
	return next
}

// recordCreating records that the agent is about to create an object that runs once.
func (w *workReconciler) recordCreating(ctx context.Context, name string, t desiredObject) error {
	rec := w.records.Get(name)
	if rec == nil {
		return fmt.Errorf("record the creation of %s: its AppliedWork %s is gone", t, name)
	}
	entry := t.newRecordEntry()
	entry.Version, entry.Kind, entry.Creating = t.gvr.Version, t.object.GetKind(), true
	next := rec.DeepCopy()
	next.Status.Objects = upsertEntry(next.Status.Objects, entry)
	return w.records.SaveStatus(ctx, next)
}

// resolveCreation finds out what came of a creation without an answer. An object that this agent failed to create
// and that does not exist may be created later. What an earlier agent has left open stays open: then a rejection
// is not reported as final, because the hub would move the object. own are the earlier results.
func (w *workReconciler) resolveCreation(ctx context.Context, rec *v1alpha1.AppliedWork, own creationResults, result *manifestResult) {
	e, ok := errors.AsType[*conditionError](result.err)
	if !result.startedCreation {
		if ok && e.reason != v1alpha1.ReasonDeletedInCluster {
			result.err = &conditionError{reason: v1alpha1.ReasonProgressing, message: e.message + "; an earlier agent may have created it"}
		}
		return
	}
	live, err := result.object.readLive(ctx, w.dynamic)
	// An answer that rejects it is proof enough where the object cannot be read.
	result.notCreated = err == nil && live == nil || err != nil && ok && e.reason != v1alpha1.ReasonProgressing
	if spec := &rec.Spec.Work; live != nil && createdFor(spec.HubUID, spec.Source.UID, live) {
		w.creations.Store(rec.Name, own.with(result.object.key(), live)) // it may be deleted before the next attempt
	}
}

// recordEntry returns the entry of an object in a record; nil when there is none.
func recordEntry(rec *v1alpha1.AppliedWork, t desiredObject) *v1alpha1.AppliedObject {
	i := slices.IndexFunc(rec.Status.Objects, func(o v1alpha1.AppliedObject) bool {
		return records.ObjectKey(o.Group, o.Resource, o.Namespace, o.Name) == t.key()
	})
	if i < 0 {
		return nil
	}
	return &rec.Status.Objects[i]
}

// lastReport returns the last report on an object in the Work's status; empty when there is none.
func lastReport(work *v1alpha1.Work, t desiredObject) v1alpha1.ManifestStatus {
	if work != nil {
		for _, m := range work.Status.Manifests {
			if m.Group == t.gvr.Group && m.Kind == t.object.GetKind() && m.Namespace == t.object.GetNamespace() && m.Name == t.object.GetName() {
				return m
			}
		}
	}
	return v1alpha1.ManifestStatus{}
}

// appliedEntry returns the record's entry of an object after an apply. old is the entry before it, if any.
func appliedEntry(old *v1alpha1.AppliedObject, t desiredObject, applied applyResult, sourceGeneration int64) *v1alpha1.AppliedObject {
	entry := t.newRecordEntry()
	if old != nil {
		entry = *old
	}
	entry.Version, entry.Kind, entry.UID, entry.Creating = t.gvr.Version, t.object.GetKind(), applied.live.GetUID(), false
	// The generation after the apply that brought this generation of the source: a later apply that only
	// repairs must not hide a status of it.
	if applied.applied || entry.AppliedGeneration == 0 {
		entry.AppliedGeneration = applied.live.GetGeneration()
	}
	entry.SourceGeneration = sourceGeneration
	return &entry
}

// runsPods tells whether controllers may create Pods for an object: for built-in workloads and for custom
// kinds.
func runsPods(live *unstructured.Unstructured) bool {
	group := live.GroupVersionKind().Group
	if group == "apps" || group == "batch" {
		return true
	}
	return strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") && group != danm.GroupName
}

// readAfterError reads the live object after a failed apply, whose error says more than one of this read.
// If the object can neither be read nor is known to be gone, it returns its UID, so that the hub does not
// take it for one that was never created.
func (w *workReconciler) readAfterError(ctx context.Context, t desiredObject, uid types.UID) (live *unstructured.Unstructured, unread types.UID) {
	live, err := t.readLive(ctx, w.dynamic)
	if err != nil && !w.applier.namespaces.isGone(ctx, t.object.GetNamespace()) {
		return nil, uid
	}
	return live, ""
}

// useLiveSecretData sets the data of a Secret to those that the agent applied to the recorded live object:
// the record stays in force, and the hub may no longer have its data. It returns cause, the error for the
// missing data, if the live object is another one.
func (w *workReconciler) useLiveSecretData(ctx context.Context, t desiredObject, uid types.UID, cause error) error {
	live, err := t.readLive(ctx, w.dynamic)
	if err != nil {
		return asConditionError(t, err)
	}
	if live == nil || live.GetUID() != uid {
		return cause
	}
	data, _, _ := unstructured.NestedMap(live.Object, "data")
	maps.DeleteFunc(data, func(key string, _ any) bool { return !managedfields.OfAgent(live).Has([]string{"data", key}) })
	if len(data) > 0 {
		t.object.Object["data"] = data
	}
	return nil
}
