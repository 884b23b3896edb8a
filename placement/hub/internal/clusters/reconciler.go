// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// StatusInterval is how often a Cluster's status and rights are compared, at the least.
const StatusInterval = 10 * time.Second

// Reconciler maintains namespace, rights and status of Clusters.
type Reconciler struct {
	// Cached reads from the cache, Direct from the API server.
	Cached client.Reader
	// Direct also writes.
	Direct client.Client
	// Events is the recorder of Events.
	Events record.EventRecorder
	// Now is the clock.
	Now func() time.Time
	// Heartbeats of all clusters.
	Heartbeats *Heartbeats
	// Capacity has what is assigned to each cluster.
	Capacity *limits.Capacity
	// Drains decides which objects leave draining clusters.
	Drains *limits.Drains
	// Lead prepares this process to lead, before its first decision.
	Lead func(context.Context) error

	access *access
}

// SetupWithManager adds the controller of Clusters to a manager.
func (r *Reconciler) SetupWithManager(m manager.Manager, options controller.Options) error {
	r.access = &access{cached: r.Cached, direct: r.Direct}
	byNamespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return requestFor(kinds.ClusterOfNamespace(o.GetNamespace()))
	})
	byNamespaceName := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return requestFor(kinds.ClusterOfNamespace(o.GetName()))
	})
	byUserName := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return requestFor(strings.CutPrefix(o.GetName(), v1alpha1.ClusterUserPrefix))
	})
	return builder.ControllerManagedBy(m).
		WithOptions(options).
		For(&v1alpha1.Cluster{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&coordinationv1.Lease{}, byNamespace).
		Watches(&v1alpha1.Assignment{}, r.drainProgressed()).
		Watches(&rbacv1.Role{}, byNamespace).
		Watches(&rbacv1.RoleBinding{}, byNamespace).
		Watches(&rbacv1.ClusterRole{}, byUserName).
		Watches(&rbacv1.ClusterRoleBinding{}, byUserName).
		WatchesMetadata(&corev1.Namespace{}, byNamespaceName).
		Complete(r)
}

// progressDelay gathers changes of many Assignments before the progress of a drain is counted again.
const progressDelay = time.Second

// drainProgressed queues the draining clusters of an Assignment that changes.
func (r *Reconciler) drainProgressed() handler.EventHandler {
	add := func(o client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		a, ok := o.(*v1alpha1.Assignment)
		if !ok {
			return
		}
		for _, t := range a.Spec.Targets {
			if r.Drains.IsActive(string(t.Cluster)) {
				q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: string(t.Cluster)}}, progressDelay)
			}
		}
	}
	return handler.Funcs{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(e.ObjectOld, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(e.Object, q)
		},
	}
}

func requestFor(cluster string, ok bool) []reconcile.Request {
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: cluster}}}
}

// Reconcile brings the rights and the status of one Cluster up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.Lead(ctx); err != nil {
		return reconcile.Result{}, err
	}
	cluster := &v1alpha1.Cluster{}
	err := r.Cached.Get(ctx, req.NamespacedName, cluster)
	switch {
	case apierrors.IsNotFound(err):
		r.Heartbeats.Forget(req.Name)
		r.Drains.End(req.Name)
		return reconcile.Result{}, r.access.revoke(ctx, req.Name)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("read Cluster %s: %w", req.Name, err)
	}
	// The heartbeat is observed also when the rights cannot be written. A Cluster that is being
	// deleted gets no new rights: a finalizer may let it be drained first.
	var accessErr error
	if cluster.DeletionTimestamp == nil {
		accessErr = r.access.grant(ctx, cluster)
	}
	lease, heartbeat, err := r.Heartbeats.Observe(ctx, cluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := r.Now()
	remaining := heartbeat.remaining(now)
	conditions := []metav1.Condition{acceptedCondition(cluster, heartbeat), reachableCondition(cluster, heartbeat, now)}
	if cluster.Spec.DeclaredLost != nil {
		conditions = append(conditions, declaredLostCondition(cluster, heartbeat, now))
	}
	var progress *v1alpha1.DrainStatus
	if limits.IsDraining(cluster) {
		var drained metav1.Condition
		if drained, progress, err = r.drain(ctx, cluster, lease, remaining > 0); err != nil {
			return reconcile.Result{}, err
		}
		conditions = append(conditions, drained)
	} else {
		r.Drains.End(cluster.Name)
	}
	if err := errors.Join(accessErr, r.writeStatus(ctx, cluster, conditions, &v1alpha1.ClusterStatus{
		Drain: progress, LastHeartbeat: lastHeartbeat(cluster, heartbeat, now),
	})); err != nil {
		return reconcile.Result{}, err
	}
	if remaining == 0 || remaining > StatusInterval {
		remaining = StatusInterval
	}
	return reconcile.Result{RequeueAfter: remaining}, nil
}

// lastHeartbeat returns when a cluster that does not report last did; nil while it reports, and before it has. If its
// heartbeat was deleted, that is when it was first missed. An old heartbeat does not renew a declaration that has ended.
func lastHeartbeat(c *v1alpha1.Cluster, h Heartbeat, now time.Time) *metav1.MicroTime {
	d, stored := c.Spec.DeclaredLost, c.Status.LastHeartbeat
	isOld := d != nil && h.newest.Equal(d.LastHeartbeat.Time) && !stored.Equal(&d.LastHeartbeat)
	switch {
	case h.remaining(now) > 0, h.namespaceTaken:
		return nil
	case !h.newest.IsZero() && !isOld:
		return &metav1.MicroTime{Time: h.newest}
	case ReachabilityOf(c) == policy.NeverReported, stored != nil:
		return stored
	}
	return &metav1.MicroTime{Time: now}
}

// writeStatus applies the hub's part of a Cluster's status, if it differs from the stored one. It adds the conditions
// and what is assigned.
func (r *Reconciler) writeStatus(
	ctx context.Context, stored *v1alpha1.Cluster, conditions []metav1.Condition, status *v1alpha1.ClusterStatus,
) error {
	for i := range conditions {
		conditions[i].LastTransitionTime = metav1.NewTime(r.Now())
		if old := meta.FindStatusCondition(stored.Status.Conditions, conditions[i].Type); old != nil && old.Status == conditions[i].Status {
			conditions[i].LastTransitionTime = old.LastTransitionTime
		}
	}
	status.Conditions, status.Assigned = conditions, assigned(r.Capacity.Usage(stored.Name))
	ended := func(conditionType string) bool { // what it is about
		return meta.FindStatusCondition(stored.Status.Conditions, conditionType) != nil && meta.FindStatusCondition(conditions, conditionType) == nil
	}
	changed := ended(v1alpha1.ConditionDrained) || ended(v1alpha1.ConditionDeclaredLost) || !equality.Semantic.DeepEqual(stored.Status.Drain, status.Drain) ||
		!stored.Status.LastHeartbeat.Equal(status.LastHeartbeat) || !equality.Semantic.DeepEqual(stored.Status.Assigned, status.Assigned)
	for _, c := range conditions {
		old := meta.FindStatusCondition(stored.Status.Conditions, c.Type)
		changed = changed || old == nil || *old != c
		if isWarning(c) && (old == nil || old.Reason != c.Reason) {
			r.Events.Event(stored, corev1.EventTypeWarning, c.Reason, c.Message)
		}
	}
	if !changed {
		return nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("encode status of Cluster %s: %w", stored.Name, err)
	}
	next := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	next.SetGroupVersionKind(v1alpha1.SchemeGroupVersion().WithKind("Cluster"))
	next.SetName(stored.Name)
	if err := r.Direct.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(next),
		client.FieldOwner(v1alpha1.HubFieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("write status of Cluster %s: %w", stored.Name, err)
	}
	return nil
}

// isWarning tells whether the transition of a condition is an Event.
func isWarning(c metav1.Condition) bool {
	return c.Reason == v1alpha1.ReasonDrainBlocked || c.Type == v1alpha1.ConditionDeclaredLost ||
		c.Type == v1alpha1.ConditionAccepted && c.Reason == v1alpha1.ReasonNamespaceTaken
}

// assigned is what the hub has placed on a cluster.
func assigned(u limits.Usage) *v1alpha1.Assigned {
	a := &v1alpha1.Assigned{Objects: int32(u.Objects), Replicas: int32(u.Replicas)}
	if u.MilliCPU > 0 || u.Memory > 0 {
		a.Requests = corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(u.MilliCPU, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(u.Memory, resource.BinarySI),
		}
	}
	return a
}
