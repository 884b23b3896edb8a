// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/text"
	"github.com/patchbay-cni/patchbay/internal/version"
	"github.com/patchbay-cni/patchbay/operator/internal/uninstall"
)

const (
	// nextStepDelay is the time until the next step: what was deleted takes a moment.
	nextStepDelay = 200 * time.Millisecond
	// waitInterval is how often a step that waits is checked again. Not all of what it waits for is watched.
	waitInterval = 3 * time.Second
	// waitFactor is how many times the duration of a pass is the least time between two, and longestWait bounds that time:
	// one pass may be slow because the API server starts.
	waitFactor  = 10
	longestWait = 30 * time.Second
	// deniedTime is how long the API server may act on policies that are deleted, and deniedDelay is the time between two
	// attempts.
	deniedTime  = 30 * time.Second
	deniedDelay = time.Second
	// reportTime is how long the last step can be read in the status before the Installation is gone.
	reportTime = 2 * time.Second
)

// uninstall does the next step of the uninstallation of an Installation that is being deleted. The version and
// the spec do not matter: what was applied has a label.
func (r *Reconciler) uninstall(ctx context.Context, i *v1alpha1.Installation) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(i, v1alpha1.UninstallFinalizer) {
		return reconcile.Result{}, nil
	}
	began := r.Now()
	step, err := r.Uninstaller.Next(ctx, i.DeepCopy())
	pass := r.Now().Sub(began)
	if err == nil && step.Action == uninstall.Finish && isReported(i, &step) {
		err = r.Uninstaller.Finish(ctx, i.DeepCopy(), &step)
	}
	isDenied := r.isDeniedYet(&step, err)
	if isDenied {
		err = nil
	}
	if !apierrors.IsConflict(err) { // the cache has an earlier Installation, or another client has written an object meanwhile
		err = cmp.Or(r.writeUninstallStatus(ctx, i, &step, err), err)
	}
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	case err != nil:
		return reconcile.Result{}, err
	case isDenied:
		return reconcile.Result{RequeueAfter: deniedDelay}, nil
	case step.Action == uninstall.Wait:
		return reconcile.Result{RequeueAfter: waitAfter(pass)}, nil
	case step.Action == uninstall.Finish:
		return reconcile.Result{RequeueAfter: reportTime}, nil
	}
	return reconcile.Result{RequeueAfter: nextStepDelay}, nil
}

// waitAfter returns the time from a pass that waits to the next one. In a large cluster, a pass takes longer.
func waitAfter(pass time.Duration) time.Duration {
	return min(max(waitInterval, waitFactor*pass), longestWait)
}

// isDeniedYet reports whether a step was denied by policies that were just deleted: the API server acts on them for some
// seconds, and nothing has failed.
func (r *Reconciler) isDeniedYet(step *uninstall.Step, err error) bool {
	isDenied := step.Action == uninstall.RemoveFinalizers && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err))
	switch {
	case !isDenied:
		r.deniedSince = time.Time{}
		return false
	case r.deniedSince.IsZero():
		r.deniedSince = r.Now()
	}
	return r.Now().Sub(r.deniedSince) < deniedTime
}

// isReported reports whether the status has the last step, so that a client that waits for the end has seen it.
func isReported(i *v1alpha1.Installation, step *uninstall.Step) bool {
	c := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionUninstalled)
	return c != nil && c.Reason == step.Reason
}

// writeUninstallStatus writes the step into the status, and records an Event when the reason changes. An Installation
// that is gone has none.
func (r *Reconciler) writeUninstallStatus(ctx context.Context, i *v1alpha1.Installation, step *uninstall.Step, failed error) error {
	next := uninstallStatus(i, step, failed, metav1.NewTime(r.Now()))
	if equality.Semantic.DeepEqual(&i.Status, next) {
		return nil
	}
	before := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionUninstalled)
	i = i.DeepCopy()
	i.Status = *next
	if err := r.Status.Update(ctx, i); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write status of Installation %s: %w", i.Name, err))
	}
	c := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionUninstalled)
	if before == nil || before.Reason != c.Reason {
		kind := corev1.EventTypeNormal
		switch c.Reason {
		case v1alpha1.ReasonPodsAttached, v1alpha1.ReasonNodesNotCleanedUp, v1alpha1.ReasonUninstallFailed, v1alpha1.ReasonAnotherInstallation:
			kind = corev1.EventTypeWarning
		}
		r.Events.Event(i, kind, c.Reason, c.Message)
	}
	return nil
}

// uninstallStatus returns the status with the step in the conditions Uninstalled and Ready.
func uninstallStatus(i *v1alpha1.Installation, step *uninstall.Step, failed error, now metav1.Time) *v1alpha1.InstallationStatus {
	next := i.Status.DeepCopy()
	next.ObservedGeneration, next.Version = i.Generation, version.String()
	reason, message := step.Reason, step.Message
	if failed != nil {
		reason, message = v1alpha1.ReasonUninstallFailed, strings.ReplaceAll(failed.Error(), "\n", "; ")
	}
	for _, kind := range []string{v1alpha1.ConditionUninstalled, v1alpha1.ConditionReady} {
		text, status := text.Truncate(message, maxMessage), metav1.ConditionFalse
		switch {
		case kind == v1alpha1.ConditionReady:
			text = "Uninstalling: " + text
		case reason == v1alpha1.ReasonUninstalled:
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&next.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: text, ObservedGeneration: i.Generation, LastTransitionTime: now,
		})
	}
	return next
}
