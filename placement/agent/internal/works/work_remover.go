// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/records"
)

const (
	// removalCheckInterval is how often the agent checks objects that are being deleted. Usually their
	// watch is earlier.
	removalCheckInterval = 2 * time.Second
	// blockedCheckInterval is how often the agent checks a Work that waits for a user.
	blockedCheckInterval = 15 * time.Second
)

// workRemover carries out the removal orders of Works.
type workRemover struct {
	hub     *hubClient
	records *records.Store
	halted  *haltedWorks
	objects *objectRemover
	traffic *serviceTraffic
	// forget drops the cached state of a Work whose objects are removed.
	forget func(work string)
}

// acceptOrder stores the order of a Work in the record, if it is for the recorded source, and carries it
// out. Without a record it removes what the order identifies.
func (r *workRemover) acceptOrder(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (time.Duration, error) {
	if halted := r.halted.any(ctx); halted != "" {
		return r.hub.reportWaiting(ctx, work, "removals wait", halted)
	}
	if rec == nil {
		return r.removeWithoutRecord(ctx, work)
	}
	order := work.Spec.Removal
	if source := rec.Spec.Work.Source.UID; order.SourceUID != source {
		return r.hub.reportNotApplied(ctx, work, newCondition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonRefused, fmt.Sprintf(
			"spec.removal.sourceUID: must be %s, the source of the objects in this cluster: got %s", source, order.SourceUID)), nil)
	}
	if !equalAsJSON(rec.Spec.Work, work.Spec) {
		var err error
		if rec, err = r.records.SaveSpec(ctx, work.Name, work.Spec, ""); err != nil {
			return r.hub.reportRejected(ctx, work, err)
		}
	}
	return r.removeRecorded(ctx, work, rec)
}

// resumeOrder carries out an order that is in the record. The Work may be gone. Until the agent has read
// all Works (synced), it does nothing: the hub may have withdrawn the order.
func (r *workRemover) resumeOrder(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork, synced bool) (time.Duration, error) {
	switch {
	case !synced:
		return 0, nil
	case r.halted.any(ctx) != "":
		return blockedCheckInterval, nil
	}
	return r.removeRecorded(ctx, work, rec)
}

// removeRecorded removes the objects of a record with an order, and reports when all are gone.
func (r *workRemover) removeRecorded(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (time.Duration, error) {
	if err := r.traffic.clear(ctx, rec); err != nil {
		return 0, err
	}
	progress, err := r.objects.removeRecorded(ctx, rec, rec.Spec.Work.Removal.Policy)
	if err != nil || !progress.done {
		return r.reportProgress(ctx, work, progress, err)
	}
	if err := r.records.Delete(ctx, rec); err != nil {
		return 0, err
	}
	r.forget(rec.Name)
	log(ctx).Info("Removed the objects of a Work", "work", rec.Name, "policy", rec.Spec.Work.Removal.Policy)
	if work == nil {
		return 0, nil
	}
	return r.reportRemoved(ctx, work, rec)
}

// removeWithoutRecord carries out an order without a record: the record was lost, or the agent never
// created anything.
func (r *workRemover) removeWithoutRecord(ctx context.Context, work *v1alpha1.Work) (time.Duration, error) {
	progress := removalProgress{done: true}
	for i, m := range slices.Backward(work.Spec.Manifests) {
		t, err := parseManifest(work.Spec, m)
		if err != nil {
			continue // the agent never applied an invalid manifest
		}
		one, err := r.objects.removeUnrecorded(ctx, t, &work.Spec, removalUID(&work.Spec, i))
		if err != nil {
			return r.reportProgress(ctx, work, removalProgress{}, err)
		}
		progress = progress.combine(one)
	}
	if !progress.done {
		return r.reportProgress(ctx, work, progress, nil)
	}
	return r.reportRemoved(ctx, work, nil)
}

// reportRemoved reports that an order is carried out. The UID of an object that runs once tells the hub that it has
// run, if the order came before the report on it.
func (r *workRemover) reportRemoved(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (time.Duration, error) {
	status := v1alpha1.WorkStatus{Term: work.Spec.Term, Revision: work.Spec.Revision, Conditions: []metav1.Condition{
		newCondition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonRemoved, "the hub ordered the removal, and it is done"),
	}}
	if rec != nil {
		for _, o := range rec.Status.Objects {
			if o.UID != "" && runsOnce(objectFromRecord(o)) {
				status.Manifests = append(status.Manifests, v1alpha1.ManifestStatus{Group: o.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID})
			}
		}
	}
	return r.hub.reportStatus(ctx, work, status)
}

// reportProgress reports what blocks a removal, and returns when to check it again. It reports what is
// pending only in place of an earlier problem, which is no longer true.
func (r *workRemover) reportProgress(ctx context.Context, work *v1alpha1.Work, progress removalProgress, err error) (time.Duration, error) {
	applied := newCondition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonRemovalBlocked, progress.blocked)
	switch {
	case err != nil:
		applied = manifestCondition(err)
	case progress.blocked == "" && work != nil && reportsProblem(work):
		applied = newCondition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonProgressing, progress.pending)
	}
	if work == nil || applied.Message == "" {
		return removalCheckInterval, err
	}
	later, reportErr := r.hub.reportNotApplied(ctx, work, applied, nil)
	switch {
	case reportErr != nil:
		return removalCheckInterval, errors.Join(err, reportErr)
	case later > 0: // it is too early for another report
		return min(later, removalCheckInterval), err
	case applied.Reason == v1alpha1.ReasonRecordLost: // a user must act
		return blockedCheckInterval, nil
	}
	return removalCheckInterval, err
}

// reportsProblem tells whether a Work's status has a problem that a user may have to solve.
func reportsProblem(work *v1alpha1.Work) bool {
	c := meta.FindStatusCondition(work.Status.Conditions, v1alpha1.ConditionApplied)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonRemoved
}
