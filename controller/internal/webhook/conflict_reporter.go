// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// The reporter runs soon after a change, and again after a failure.
const (
	conflictReportInterval      = time.Second
	conflictReportRetryInterval = 10 * time.Second
)

// conflictReporter maintains the condition Conflict of networks that conflict with an older one, in
// one replica at a time. Few such networks exist: those created at the same moment through two
// replicas, and those created while admission was not running. The node daemons detect conflicts
// with the same function, so they reject the same networks with the same message.
type conflictReporter struct {
	client client.Client
	index  *networkIndex
	log    logr.Logger
	// reported are the messages of the networks' conditions; nil until they were read.
	reported map[network.Ref]string
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: one replica writes conditions.
func (r *conflictReporter) NeedLeaderElection() bool { return true }

// Start maintains the conditions until ctx ends.
func (r *conflictReporter) Start(ctx context.Context) error {
	wait := conflictReportInterval
	for sleep(ctx, wait) {
		wait = conflictReportRetryInterval
		switch err := r.updateConditions(ctx); {
		case err != nil && ctx.Err() == nil:
			r.log.Error(err, "Failed to update Conflict conditions")
			continue
		case err == nil:
			wait = conflictReportInterval
		}
		select {
		case <-ctx.Done():
		case <-r.index.conflictsChanged:
		}
	}
	return nil
}

// sleep waits, and reports false when ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// updateConditions writes the conditions that differ from the present conflicts.
func (r *conflictReporter) updateConditions(ctx context.Context) error {
	if !r.index.synced.Load() {
		return nil // markSynced makes it run again
	}
	if r.reported == nil {
		if err := r.readConditions(ctx); err != nil {
			return err
		}
	}
	conflicts := network.Conflicts(r.index.conflictCandidates())
	var failed []error
	for ref := range r.reported {
		if conflicts[ref] == nil {
			failed = append(failed, r.updateCondition(ctx, ref, nil))
		}
	}
	for ref, err := range conflicts {
		if r.reported[ref] != err.Error() {
			failed = append(failed, r.updateCondition(ctx, ref, err))
		}
	}
	return errors.Join(failed...)
}

// readConditions reads the conditions that an earlier leader wrote.
func (r *conflictReporter) readConditions(ctx context.Context) error {
	reported := map[network.Ref]string{}
	err := eachNetwork(ctx, r.client, func(ref network.Ref, obj client.Object) {
		if c := meta.FindStatusCondition(kube.NetworkStatusOf(obj).Conditions, v1.ConditionConflict); c != nil {
			reported[ref] = c.Message
		}
	})
	if err != nil {
		return err
	}
	r.reported = reported
	return nil
}

// updateCondition writes the condition of one network, or removes it when conflict is nil.
func (r *conflictReporter) updateCondition(ctx context.Context, ref network.Ref, conflict error) error {
	obj, err := kube.NewNetwork(ref.Kind)
	if err != nil {
		return err
	}
	err = r.client.Get(ctx, kube.ObjectKey(ref), obj)
	if err == nil {
		var conditions []metav1.Condition
		if conflict != nil {
			conditions = append(conditions, conflictCondition(obj, conflict))
		}
		err = kube.ApplyConditions(ctx, r.client, ref, obj.GetUID(), conflictFieldManager, conditions...)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write condition of %s: %w", ref, err)
	}
	if conflict == nil || err != nil {
		delete(r.reported, ref)
	} else {
		r.reported[ref] = conflict.Error()
	}
	return nil
}

// conflictFieldManager owns the condition Conflict, and no other field.
const conflictFieldManager = "patchbay-controller-conflicts"

// conflictCondition returns the condition of a network with a conflict.
func conflictCondition(obj client.Object, conflict error) metav1.Condition {
	c := metav1.Condition{
		Type: v1.ConditionConflict, Status: metav1.ConditionTrue, Reason: v1.ReasonLinkTaken,
		Message: conflict.Error(), ObservedGeneration: obj.GetGeneration(), LastTransitionTime: metav1.Now(),
	}
	switch {
	case errors.Is(conflict, network.ErrParentShared):
		c.Reason = v1.ReasonParentShared
	case errors.Is(conflict, network.ErrPoolOverlap):
		c.Reason = v1.ReasonPoolOverlap
	}
	if old := meta.FindStatusCondition(kube.NetworkStatusOf(obj).Conditions, c.Type); old != nil {
		c.LastTransitionTime = old.LastTransitionTime
	}
	return c
}
