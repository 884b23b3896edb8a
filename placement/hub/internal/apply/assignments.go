// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/desiredstate"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

// Assignments writes Assignments.
type Assignments struct {
	// Direct is the API server.
	Direct client.Client
	// Events is the recorder of Events.
	Events record.EventRecorder
	// Expectations learn of each write.
	Expectations *Expectations
}

// Write stores the spec of an Assignment in one write, and returns the Assignment as stored then.
// Its argument changes. An object without targets gets an Assignment only if that has something to
// report. The error is scope.ErrStale if the Assignment was deleted meanwhile.
func (w *Assignments) Write(ctx context.Context, s *scope.Scope, next *v1alpha1.Assignment, reports bool) (*v1alpha1.Assignment, error) {
	key := s.Key.Assignment()
	if s.Assignment.UID == "" {
		if len(next.Spec.Targets) == 0 && (s.Object == nil || !reports && !mayHaveWorks(s)) {
			return s.Assignment, nil
		}
		next.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
		err := w.Direct.Create(ctx, next)
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return next, nil // it went with its namespace; the Works are enough to remove the object
		}
		if err != nil {
			return nil, fmt.Errorf("create Assignment %s: %w", key, err)
		}
		w.Expectations.ExpectWritten(s.Key, next)
		return next, nil
	}
	if equality.Semantic.DeepEqual(s.Assignment.Spec, next.Spec) {
		return s.Assignment, nil
	}
	if err := w.Direct.Update(ctx, next); err != nil {
		return nil, fmt.Errorf("update Assignment %s: %w", key, staleIfDeleted(err))
	}
	w.Expectations.ExpectWritten(s.Key, next)
	return next, nil
}

// mayHaveWorks reports whether clusters may have the object. The finalizer says so for a cache of
// Assignments and Works that is behind: the API server then rejects the second Assignment.
func mayHaveWorks(s *scope.Scope) bool {
	return len(s.Works) > 0 || controllerutil.ContainsFinalizer(s.Object, v1alpha1.PlacedFinalizer)
}

// staleIfDeleted returns scope.ErrStale for an Assignment that was deleted meanwhile: the cache is
// behind. It returns other errors unchanged.
func staleIfDeleted(err error) error {
	if kinds.IsObjectNotFound(err) {
		return scope.ErrStale
	}
	return err
}

// WriteStatus stores the status of an Assignment, and records its Events. A new warning is stored at
// once, other changes at intervals: after is when the status is due then. Refusals get their Events
// after the status is stored, so that each gets one. The error is scope.ErrStale if the Assignment was
// deleted meanwhile.
func (w *Assignments) WriteStatus(
	ctx context.Context, s *scope.Scope, stored *v1alpha1.Assignment, status desiredstate.Status, worksWritten bool,
) (_ *v1alpha1.Assignment, after time.Duration, err error) {
	w.recordEvents(s, status.Warnings)
	if equality.Semantic.DeepEqual(stored.Status, status.Assignment) {
		return stored, 0, nil
	}
	if len(status.Warnings) == 0 {
		if due, after := w.Expectations.StatusDue(s.Key, worksWritten); !due {
			return stored, after, nil
		}
	}
	next := stored.DeepCopy()
	next.Status = status.Assignment
	if err := w.Direct.Status().Update(ctx, next); err != nil {
		return nil, 0, fmt.Errorf("write status of Assignment %s/%s: %w", next.Namespace, next.Name, staleIfDeleted(err))
	}
	w.recordEvents(s, status.Refusals)
	return next, 0, nil
}

func (w *Assignments) recordEvents(s *scope.Scope, warnings []desiredstate.Warning) {
	if s.Object == nil {
		return
	}
	for _, e := range warnings {
		w.Events.Event(s.Object, corev1.EventTypeWarning, e.Reason, e.Message)
	}
}

// Delete deletes an Assignment, if it is still as stored.
func (w *Assignments) Delete(ctx context.Context, s *scope.Scope, stored *v1alpha1.Assignment) error {
	err := w.Direct.Delete(ctx, stored, client.Preconditions{UID: &stored.UID, ResourceVersion: &stored.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Assignment %s/%s: %w", stored.Namespace, stored.Name, err)
	}
	w.Expectations.Forget(s.Key)
	return nil
}
