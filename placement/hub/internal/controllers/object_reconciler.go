// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/apply"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/desiredstate"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/reports"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

// drainRetry is when to decide again after other objects have taken the slots of a drain.
const drainRetry = time.Second

// objectReconciler takes one object at a time through the stages of placement.
type objectReconciler struct {
	cached       cache.Informers
	kinds        *kinds.Registry
	leadership   *leadership
	reader       *scope.Reader
	capacity     *limits.Capacity
	drains       *limits.Drains
	expectations *apply.Expectations
	reports      *reports.Tracker
	objects      *apply.Objects
	assignments  *apply.Assignments
	works        *apply.Works
	secrets      *apply.Secrets
	events       record.EventRecorder
	now          func() time.Time
}

// Reconcile places one object.
func (r *objectReconciler) Reconcile(ctx context.Context, key kinds.Key) (reconcile.Result, error) {
	if err := r.leadership.ensure(ctx); err != nil {
		return reconcile.Result{}, err
	}
	k, served := r.kinds.Get(key.GroupKind)
	switch {
	case !r.kinds.Discovered():
		return reconcile.Result{RequeueAfter: discoverySoon}, nil
	case !served: // its definition is gone: what is placed stays
		return reconcile.Result{}, nil
	case !kinds.IsListed(ctx, r.cached, k):
		return reconcile.Result{RequeueAfter: kinds.ListRetry}, nil
	}
	s, err := r.reader.Read(ctx, key, k)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case s == nil: // also after a plan that reserved room, and failed before its first write
		r.capacity.Set(key, limits.Reservation{})
		r.capacity.AwaitRoom(key, limits.AwaitedRoom{})
		r.drains.Update(key, nil, r.now())
		r.reports.Wait(key, nil)
		return reconcile.Result{}, nil
	}
	satisfied, err := r.expectations.Satisfied(ctx, s)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !satisfied:
		return reconcile.Result{RequeueAfter: r.expectations.Backoff(key)}, nil
	}
	after, err := r.place(ctx, s)
	switch {
	case err == nil:
		r.expectations.ResetBackoff(key)
		return reconcile.Result{RequeueAfter: after}, nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), errors.Is(err, scope.ErrStale):
		return reconcile.Result{RequeueAfter: r.expectations.Backoff(key)}, nil
	case errors.Is(err, limits.ErrDrainLimit):
		return reconcile.Result{RequeueAfter: drainRetry}, nil
	case errors.Is(err, apply.ErrNamespaceMissing): // the Cluster is new, or a user has deleted the namespace
		return reconcile.Result{RequeueAfter: r.expectations.Backoff(key)}, nil
	}
	return reconcile.Result{}, fmt.Errorf("place %s: %w", key, err)
}

// place takes an object from its Scope through all other stages, and returns when to do so again.
// The hub may be killed between any two writes: the next reconciliation goes on from what is stored.
func (r *objectReconciler) place(ctx context.Context, s *scope.Scope) (after time.Duration, err error) {
	p, err := r.plan(ctx, s)
	if err != nil {
		return 0, err
	}
	stored := state{object: s.Object}
	if len(p.next.Spec.Targets) > 0 {
		if stored.object, err = r.objects.AddFinalizer(ctx, s); err != nil {
			return 0, err
		}
	}
	if stored.assignment, err = r.assignments.Write(ctx, s, p.next, reportsWithoutTargets(s.Object, p.decision)); err != nil {
		return 0, err
	}
	r.drains.Update(s.Key, p.next.Spec.Targets, s.Now)

	changes := desiredstate.RenderWorks(s, stored.assignment, p.decision)
	worksWritten, worksErr := r.works.Apply(ctx, s, stored.assignment, changes)
	rendered := desiredstate.RenderedCondition(changes.Mistake())
	// A missing namespace is reported, since users could not tell else why the object does not come.
	namespaceMissing := errors.Is(worksErr, apply.ErrNamespaceMissing) || apierrors.HasStatusCause(worksErr, corev1.NamespaceTerminatingCause)
	switch {
	case namespaceMissing:
		rendered = desiredstate.NamespaceMissingCondition(worksErr)
	case worksErr != nil:
		return 0, worksErr
	}

	if p.conditions = append(p.conditions, rendered); changes.TrafficMerged != nil {
		p.conditions = append(p.conditions, *changes.TrafficMerged)
	}
	stored, after, err = r.report(ctx, s, stored, p, worksWritten)
	switch {
	case err != nil:
		return 0, err
	case namespaceMissing:
		return 0, apply.ErrNamespaceMissing
	}
	return scope.Sooner(p.requeueAfter, after), r.release(ctx, s, stored, p.decision)
}

// plan is what the stages before the first write compute.
type plan struct {
	decision     desiredstate.Decision
	next         *v1alpha1.Assignment
	conditions   []metav1.Condition
	rolledBack   *desiredstate.Warning
	requeueAfter time.Duration
}

// plan resolves the policy, assigns clusters, and takes the next step of the migration. After a
// user's mistake the earlier decision stays in force: moves that are under way go on.
func (r *objectReconciler) plan(ctx context.Context, s *scope.Scope) (p plan, err error) {
	resolution, err := scope.Resolve(s)
	if err != nil {
		return plan{}, err
	}
	current := desiredstate.CurrentAssignment(s)
	var unknown *scope.UnknownDependents
	if desiredstate.DependsOnDependents(s, resolution, current) {
		if unknown, err = r.reader.FindUnknownDependents(ctx, s); err != nil {
			return plan{}, err
		}
	}
	if p.decision, err = desiredstate.Assign(s, resolution, current, unknown, r.capacity, r.drains); err != nil {
		return plan{}, err
	}
	if mistake := p.decision.DrainPriorityMistake; mistake != nil {
		r.events.Event(s.Object, corev1.EventTypeWarning, mistake.Reason, mistake.Error())
	}
	p.next = desiredstate.NextAssignment(s, current, p.decision)
	lost := s.Assignment.UID == "" && len(current.Spec.Targets) > 0
	if p.decision.Mistake == nil || lost { // a user's mistake keeps the dependencies that are recorded
		if p.next.Spec.Dependencies, err = r.reader.Dependencies(ctx, s, p.decision.Policy, current); err != nil {
			return plan{}, err
		}
	}
	migration := desiredstate.Migrate(s, p.next, p.decision)
	p.next.Spec.Targets = migration.Targets
	desiredstate.RecordStarted(s, p.next)
	losing := desiredstate.ClustersLosing(current.Spec.Targets, p.next.Spec.Targets)
	counted := desiredstate.ClustersCounted(current.Spec.Targets, p.next.Spec.Targets)
	if err := r.reader.Confirm(ctx, s, resolution, losing, counted); err != nil {
		return plan{}, err
	}
	if from := desiredstate.ReleasedBy(s.Assignment, p.next); from != "" {
		if err := r.reader.ConfirmVolume(ctx, s, from); err != nil {
			return plan{}, err
		}
	}
	p.rolledBack = migration.RolledBack
	r.reports.Wait(s.Key, migration.AwaitedReports)
	r.capacity.Set(s.Key, desiredstate.ReservationOf(s, p.next))
	r.capacity.AwaitRoom(s.Key, p.decision.AwaitedRoom)
	p.conditions = []metav1.Condition{desiredstate.PlacedCondition(p.decision), migration.MoveBlocked}
	p.requeueAfter = scope.Sooner(s.RequeueAfter, scope.Sooner(p.decision.RequeueAfter, migration.RequeueAfter))
	return p, nil
}

// state is what is stored after the writes of this reconciliation so far.
type state struct {
	object     *unstructured.Unstructured // nil: it does not exist
	assignment *v1alpha1.Assignment       // without a UID: there is none
}

// report writes the status of the Assignment and of the object.
func (r *objectReconciler) report(
	ctx context.Context, s *scope.Scope, stored state, p plan, worksWritten bool,
) (_ state, after time.Duration, err error) {
	if stored.assignment.UID == "" {
		return stored, 0, nil
	}
	status := desiredstate.AggregateStatus(s, stored.assignment, p.conditions)
	if p.rolledBack != nil {
		status.Warnings = append(status.Warnings, *p.rolledBack)
	}
	if stored.assignment, after, err = r.assignments.WriteStatus(ctx, s, stored.assignment, status, worksWritten); err != nil {
		return state{}, 0, err
	}
	if status.Evict {
		return stored, after, r.objects.Evict(ctx, s, stored.object)
	}
	if worksWritten && after > 0 { // the object's status also waits for the reports
		return stored, after, nil
	}
	fields, err := status.ObjectStatus(s, stored.object, p.decision)
	if err != nil || fields == nil {
		return stored, after, err
	}
	stored.object, err = r.objects.WriteStatus(ctx, s, stored.object, fields)
	return stored, after, err
}

// release removes the finalizer when no cluster has the object any more, and deletes the Assignment
// when no policy selects the object.
func (r *objectReconciler) release(ctx context.Context, s *scope.Scope, stored state, d desiredstate.Decision) (err error) {
	if len(stored.assignment.Spec.Targets) > 0 || len(s.Works) > 0 {
		return nil
	}
	if stored.object != nil && controllerutil.ContainsFinalizer(stored.object, v1alpha1.PlacedFinalizer) {
		if err := r.secrets.DeleteOrphans(ctx, s); err != nil {
			return err
		}
		if stored.object, err = r.objects.RemoveFinalizer(ctx, s, stored.object); err != nil {
			return err
		}
	}
	alive := stored.object != nil && stored.object.GetDeletionTimestamp() == nil
	remembers := alive && len(stored.assignment.Spec.Decision.StartedIn) > 0 // that it must not run again
	if stored.assignment.UID == "" || remembers || reportsWithoutTargets(stored.object, d) {
		return nil
	}
	return r.assignments.Delete(ctx, s, stored.assignment)
}

// reportsWithoutTargets reports whether an object that is in no cluster has an Assignment, which
// reports why.
func reportsWithoutTargets(object *unstructured.Unstructured, d desiredstate.Decision) bool {
	alive := object != nil && object.GetDeletionTimestamp() == nil
	return alive && (d.Policy != nil || d.Mistake != nil)
}
