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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// How often the referee looks: soon after a change, and again after a failure.
const (
	conflictReportInterval      = time.Second
	conflictReportRetryInterval = 10 * time.Second
)

// conflictReporter says on networks which older one is in their way, in one replica at a time.
// Few are let in like that: those that were created at the same moment through two
// replicas, while admission was away, or before it was there. The node daemons judge
// by the same function, so they refuse the same ones, with the same words.
type conflictReporter struct {
	client client.Client
	index  *networkIndex
	log    logr.Logger
	// reported is what the networks' conditions say.
	reported map[network.Ref]string
}

// NeedLeaderElection says that one replica writes conditions.
func (r *conflictReporter) NeedLeaderElection() bool { return true }

// Start judges until ctx ends.
func (r *conflictReporter) Start(ctx context.Context) error {
	wait := conflictReportInterval
	for sleep(ctx, wait) {
		wait = conflictReportRetryInterval
		switch err := r.updateConditions(ctx); {
		case err != nil && ctx.Err() == nil:
			r.log.Error(err, "Say which networks are in each other's way")
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

// sleep waits, and reports whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// updateConditions brings the conditions up to what the networks are now.
func (r *conflictReporter) updateConditions(ctx context.Context) error {
	if ready := r.index.checkSynced() == nil; !ready {
		return nil // it moves when it is
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

// readConditions reads what a former leader has told.
func (r *conflictReporter) readConditions(ctx context.Context) error {
	told := map[network.Ref]string{}
	for _, kind := range kube.NetworkKinds() {
		fresh := func() client.ObjectList {
			list, _ := kube.NewNetworkList(kind) // it is one of objects.Kinds
			return list
		}
		err := eachListItem(ctx, r.client, fresh, func(obj client.Object) {
			if c := meta.FindStatusCondition(kube.NetworkStatusOf(obj).Conditions, v1.ConditionConflict); c != nil {
				told[kube.NetworkRefOf(kind, obj)] = c.Message
			}
		})
		if err != nil {
			return fmt.Errorf("list conditions of kind %s: %w", kind, err)
		}
	}
	r.reported = told
	return nil
}

// updateCondition writes the condition of one network, or takes it off.
func (r *conflictReporter) updateCondition(ctx context.Context, ref network.Ref, conflict error) error {
	obj, err := kube.NewNetwork(ref.Kind)
	if err != nil {
		return err
	}
	err = r.client.Get(ctx, kube.ObjectKey(ref), obj)
	if err == nil {
		err = r.applyCondition(ctx, ref, obj, conflict)
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

// conflictFieldManager owns the condition for server-side apply, and no other field.
const conflictFieldManager = "patchbay-controller-referee"

// applyCondition makes the condition the one that the network has, or takes it off. It names
// the UID and no resourceVersion: it never fails because somebody claims addresses.
func (r *conflictReporter) applyCondition(ctx context.Context, ref network.Ref, obj client.Object, conflict error) error {
	all := []any{}
	if conflict != nil {
		c := conflictCondition(obj, conflict)
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c)
		if err != nil {
			return fmt.Errorf("encode condition: %w", err)
		}
		all = append(all, u)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": all}}}
	u.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(ref.Kind))
	u.SetNamespace(ref.Namespace)
	u.SetName(ref.Name)
	u.SetUID(obj.GetUID())
	return r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(conflictFieldManager), client.ForceOwnership)
}

// conflictCondition is what to say.
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
