// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/term"
)

// unremoved watches the Works of a namespace's objects. Check ends the watch, and fails if a Work was
// ordered removed or deleted.
func (h *testHub) unremoved(ns string) (check func()) {
	h.t.Helper()
	var none v1alpha1.WorkList
	if err := h.client.List(h.t.Context(), &none); err != nil {
		h.t.Fatal(err)
	}
	w, err := toolswatch.NewRetryWatcherWithContext(h.t.Context(), none.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return h.client.Watch(ctx, &v1alpha1.WorkList{}, &client.ListOptions{Raw: &o})
		},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	found := make(chan []string, 1)
	go func() {
		var removed []string
		for e := range w.ResultChan() {
			one, ok := e.Object.(*v1alpha1.Work)
			if ok && one.Spec.Source.Namespace == ns && (one.Spec.Removal != nil || e.Type == watch.Deleted) {
				removed = append(removed, one.Namespace+"/"+one.Name)
			}
		}
		found <- removed
	}()
	return func() {
		h.t.Helper()
		w.Stop()
		for _, name := range <-found {
			h.t.Errorf("Work %s was ordered removed", name)
		}
	}
}

func (h *testHub) delete(o client.Object) {
	h.t.Helper()
	if err := h.client.Delete(h.t.Context(), o); err != nil {
		h.t.Fatal(err)
	}
}

func configMap(ns, name, clusters string) *corev1.ConfigMap {
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": name}}}
	if clusters != "" {
		o.Annotations = map[string]string{v1alpha1.ClustersAnnotation: clusters}
	}
	return o
}

func configKey(ns, name string) kinds.Key {
	return kinds.Key{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Namespace: ns, Name: name}
}

// (Safety 1) An object stays in its clusters however its policy was lost, and reports that. A user's
// order removes it.
func TestLostPolicyRemovesNothing(t *testing.T) {
	h := newTestHub(t)
	h.cluster("lost-east", v1alpha1.ClusterSpec{})
	east := v1alpha1.PlacementSpec{Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"lost-east"}}}
	selecting := east
	selecting.Objects = []v1alpha1.ObjectSelector{{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	removing := selecting
	removing.OnUnselected = v1alpha1.OnUnselectedRemove
	relabel := func(o client.Object) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"app":"other"}}}`))
		if err := h.client.Patch(t.Context(), o, patch); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		reason  string
		policy  v1alpha1.PlacementSpec
		lose    func(o, policy client.Object)
		removed bool
	}{
		"deleted":              {"A deleted policy orders nothing.", east, func(_, p client.Object) { h.delete(p) }, false},
		"deleted, with Remove": {"A deleted policy orders nothing, even with onUnselected: Remove.", removing, func(_, p client.Object) { h.delete(p) }, false},
		"relabelled":           {"An object that its policy no longer selects stays.", selecting, func(o, _ client.Object) { relabel(o) }, false},
		"relabelled, with Remove": {
			"Unless the policy says that it goes.", removing, func(o, _ client.Object) { relabel(o) }, true,
		},
		"without clusters": {
			"A policy without clusters is no order either.", east, func(_, p client.Object) {
				if err := h.client.Patch(t.Context(), p, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"clusters":null}}`))); err != nil {
					t.Fatal(err)
				}
			}, false,
		},
	}
	i := 0
	for name, tc := range cases {
		ns := h.namespace(fmt.Sprintf("lost-%d", i))
		i++
		t.Run(name, func(t *testing.T) {
			h := &testHub{t: t, client: h.client, timeout: h.timeout}
			policy := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"}, Spec: tc.policy}
			h.create(policy)
			o := configMap(ns, "web", "")
			h.create(o)
			key := configKey(ns, "web")
			h.expectWorks(key, map[string]int32{"lost-east": 0})
			check := h.unremoved(ns)
			tc.lose(o, policy)
			if tc.removed {
				h.expectWorks(key, map[string]int32{})
				return
			}
			reason := v1alpha1.ReasonNoPolicy
			if name == "without clusters" {
				reason = v1alpha1.ReasonNoClusterSelected
			}
			h.expectReported(key, v1alpha1.ConditionPlaced, reason, "")
			h.create(configMap(ns, "later", "lost-east")) // the hub has had time to remove the others
			h.expectWorks(configKey(ns, "later"), map[string]int32{"lost-east": 0})
			check()
			h.annotate(o, "")
			h.expectWorks(key, map[string]int32{})
			h.expectCondition(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonNoClustersRequested, "")
		})
	}
}

// (Safety 1) The policy's onDelete applies after the policy was deleted, when a user orders the removal
// by the annotation.
func TestLostPolicyStillOrphans(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("still-orphans")
	h.cluster("orphans-east", v1alpha1.ClusterSpec{})
	p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"}, Spec: v1alpha1.PlacementSpec{
		Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"orphans-east"}}, OnDelete: v1alpha1.OnDeleteOrphan,
	}}
	h.create(p)
	o, key := configMap(ns, "web", ""), configKey(ns, "web")
	h.create(o)
	h.expectWorks(key, map[string]int32{"orphans-east": 0})
	h.delete(p)
	h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonNoPolicy, "")
	ordered := h.policyOf(ns)
	h.annotate(o, "")
	if got := ordered(); got != v1alpha1.OnDeleteOrphan {
		t.Errorf("removal: got policy %q, want %q of the policy", got, v1alpha1.OnDeleteOrphan)
	}
	h.expectWorks(key, map[string]int32{})
}

// (Safety 1) The policy of an object is also lost when its namespace loses the selected label, and when
// its annotation is removed.
func TestUnselectedNamespaceKeepsObjects(t *testing.T) {
	h := newTestHub(t)
	h.cluster("unselected-east", v1alpha1.ClusterSpec{})
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "unselected", Labels: map[string]string{"placed": "true"}}}
	h.create(ns)
	policy := &v1alpha1.ClusterPlacement{ObjectMeta: metav1.ObjectMeta{Name: "unselected"}}
	policy.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"placed": "true"}}
	policy.Spec.Objects = []v1alpha1.ObjectSelector{{Kind: "ConfigMap", Names: []v1alpha1.ObjectName{"web"}}}
	policy.Spec.Clusters.Names = []v1alpha1.ClusterName{"unselected-east"}
	h.create(policy)
	t.Cleanup(func() { _ = h.client.Delete(context.Background(), policy) })
	own := configMap(ns.Name, "own", "unselected-east")
	h.create(configMap(ns.Name, "web", ""))
	h.create(own)
	for _, name := range []string{"web", "own"} {
		h.expectWorks(configKey(ns.Name, name), map[string]int32{"unselected-east": 0})
	}
	check := h.unremoved(ns.Name)
	for o, patch := range map[client.Object]string{
		ns:  `{"metadata":{"labels":{"placed":null}}}`,
		own: `{"metadata":{"annotations":{"placement.patchbay.io/clusters":null}}}`,
	} {
		if err := h.client.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"web", "own"} {
		h.expectReported(configKey(ns.Name, name), v1alpha1.ConditionPlaced, v1alpha1.ReasonNoPolicy, "kubectl patchbay remove")
	}
	check()
}

// (Safety 6) No object is removed when a Cluster is deleted and created again.
func TestRecreatedClusterRemovesNothing(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("recreated")
	labelled := func(name string) {
		c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := h.client.Patch(t.Context(), c, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"pool":"recreated"}}}`))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"recreated-east", "recreated-west"} {
		h.cluster(name, v1alpha1.ClusterSpec{})
		labelled(name)
	}
	h.create(&v1alpha1.Placement{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"},
		Spec: v1alpha1.PlacementSpec{Clusters: v1alpha1.ClusterChoice{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "recreated"}},
		}},
	})
	h.create(configMap(ns, "web", ""))
	key := configKey(ns, "web")
	both := map[string]int32{"recreated-east": 0, "recreated-west": 0}
	h.expectWorks(key, both)
	check := h.unremoved(ns)
	h.delete(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "recreated-east"}})
	h.eventually("the hub to plan without it", func(ctx context.Context) error {
		a := &v1alpha1.Assignment{}
		if err := h.client.Get(ctx, key.Assignment(), a); err != nil {
			return err
		}
		for _, t := range a.Spec.Targets {
			if t.Cluster == "recreated-east" && t.State == v1alpha1.TargetDraining {
				return nil
			}
		}
		return fmt.Errorf("%w: %+v", errNotYet, a.Spec.Targets)
	})
	h.create(&v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "recreated-east", Labels: map[string]string{"pool": "recreated"}}, Spec: v1alpha1.ClusterSpec{Accepted: true},
	})
	h.eventually("both Assignments to have it again", func(ctx context.Context) error {
		a := &v1alpha1.Assignment{}
		if err := h.client.Get(ctx, key.Assignment(), a); err != nil {
			return err
		}
		for _, t := range a.Spec.Targets {
			if t.State != v1alpha1.TargetActive {
				return fmt.Errorf("%w: %+v", errNotYet, a.Spec.Targets)
			}
		}
		return nil
	})
	h.expectWorks(key, both)
	check()
}

// (Safety 6) A Cluster that is being deleted, as by Argo CD and kubectl's --cascade=foreground, and one
// that is not accepted any more, keep their objects.
func TestLeavingClusterRemovesNothing(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("goes-out")
	for _, name := range []string{"out-east", "out-west", "out-north"} {
		h.cluster(name, v1alpha1.ClusterSpec{})
		h.patch(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, `{"metadata":{"labels":{"pool":"out"}}}`)
	}
	h.create(&v1alpha1.Placement{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"},
		Spec: v1alpha1.PlacementSpec{Clusters: v1alpha1.ClusterChoice{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "out"}},
		}},
	})
	h.create(configMap(ns, "web", ""))
	all := map[string]int32{"out-east": 0, "out-west": 0, "out-north": 0}
	h.expectWorks(configKey(ns, "web"), all)
	check := h.unremoved(ns)
	east := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "out-east"}}
	h.patch(east, `{"metadata":{"finalizers":["example.com/test"]}}`)
	t.Cleanup(func() {
		_ = h.client.Patch(context.Background(), east, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	})
	h.delete(east)
	h.patch(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "out-north"}}, `{"spec":{"accepted":false}}`)
	later := map[string]int32{"out-west": 0}
	h.create(configMap(ns, "later", "")) // the hub has had time to remove the others
	h.expectWorks(configKey(ns, "later"), later)
	h.expectWorks(configKey(ns, "web"), all)
	check()
}

// patch changes an object by a JSON merge patch (RFC 7386).
func (h *testHub) patch(o client.Object, change string) {
	h.t.Helper()
	if err := h.client.Patch(h.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(change))); err != nil {
		h.t.Fatal(err)
	}
}

// silence stops a cluster's agent, if it has one, and makes its heartbeat expire by a shorter lease. A
// change of its time would be a new heartbeat.
func (h *testHub) silence(name string) {
	h.t.Helper()
	if stop := h.agents[name]; stop != nil {
		stop()
	}
	patch := []byte(`{"spec":{"leaseDurationSeconds":1}}`)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ClusterNamespacePrefix + name, Name: v1alpha1.HeartbeatLease}}
	if err := h.client.Patch(h.t.Context(), lease, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		h.t.Fatal(err)
	}
}

// expectApplied waits until the hub has recorded that a cluster applied an object.
func (h *testHub) expectApplied(k kinds.Key, cluster string) {
	h.t.Helper()
	h.eventually(cluster+" to have applied "+k.String(), func(ctx context.Context) error {
		a := &v1alpha1.Assignment{}
		if err := h.client.Get(ctx, k.Assignment(), a); err != nil {
			return err
		}
		for _, c := range a.Status.Clusters {
			if string(c.Cluster) == cluster && c.Applied {
				return nil
			}
		}
		return fmt.Errorf("%w: %+v", errNotYet, a.Status.Clusters)
	})
}

// (Safety 2) An accepted cluster without an agent gets nothing, and a silent one keeps its objects: growth
// goes to the others. An object that waits for such a cluster reports that.
func TestUnreachableClustersGetNothing(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("silent")
	for _, name := range []string{"silent-east", "silent-west"} {
		h.cluster(name, v1alpha1.ClusterSpec{})
	}
	h.create(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "silent-never"}, Spec: v1alpha1.ClusterSpec{Accepted: true}})
	d := deployment(ns, "web", "silent-east,silent-west,silent-never", 6)
	h.create(d)
	key := deploymentKey(ns, "web")
	h.expectWorks(key, map[string]int32{"silent-east": 3, "silent-west": 3})
	alone := deployment(ns, "alone", "silent-never", 2)
	h.create(alone)
	h.expectReported(deploymentKey(ns, "alone"), v1alpha1.ConditionPlaced, v1alpha1.ReasonWaitingForCluster, "silent-never has not reported yet")
	h.expectApplied(key, "silent-west") // otherwise its replicas go elsewhere, too
	h.silence("silent-west")
	h.eventually("silent-west to be unreachable", func(ctx context.Context) error {
		c := &v1alpha1.Cluster{}
		if err := h.client.Get(ctx, client.ObjectKey{Name: "silent-west"}, c); err != nil || clusters.IsReachable(c) {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil
	})
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":9}}`))
	if err := h.client.Patch(t.Context(), d, patch); err != nil {
		t.Fatal(err)
	}
	grown := map[string]int32{"silent-east": 6, "silent-west": 3}
	h.expectWorks(key, grown)
	h.create(configMap(ns, "later", "silent-east")) // the hub has had time to place the rest elsewhere
	h.expectWorks(configKey(ns, "later"), map[string]int32{"silent-east": 0})
	h.expectApplied(key, "silent-east")
	h.expectWorks(key, grown)
	h.expectWorks(deploymentKey(ns, "alone"), map[string]int32{})
}

// Objects that wait for a cluster whose heartbeat has expired are placed when it returns, also if the hub has not
// stored the loss in between: then no event of the Cluster queues them.
func TestHeartbeatReturnsBeforeItsLossIsStored(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("flicker")
	const cluster = "flicker-east"
	h.cluster(cluster, v1alpha1.ClusterSpec{})
	d := deployment(ns, "web", cluster, 3)
	h.create(d)
	key := deploymentKey(ns, "web")
	h.expectWorks(key, map[string]int32{cluster: 3})
	h.expectApplied(key, cluster)
	h.refuseStatuses(cluster)
	h.silence(cluster)
	replicas := int32(3)
	h.eventually("the hub to wait for the cluster", func(ctx context.Context) error {
		replicas++ // the hub may still place some before it observes the loss
		grown := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
		a := &v1alpha1.Assignment{}
		if err := errors.Join(h.client.Patch(ctx, d, grown), h.client.Get(ctx, key.Assignment(), a)); err != nil {
			return err
		}
		if placed := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionPlaced); placed == nil || placed.Reason != v1alpha1.ReasonWaitingForCluster {
			return fmt.Errorf("%w: %+v", errNotYet, placed)
		}
		return nil
	})
	h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonWaitingForCluster, fmt.Sprintf("of %d replicas have no room", replicas))
	h.expectQuiet(d, key)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ClusterNamespacePrefix + cluster, Name: v1alpha1.HeartbeatLease}}
	h.patch(lease, `{"spec":{"leaseDurationSeconds":3600,"renewTime":"`+time.Now().UTC().Format(metav1.RFC3339Micro)+`"}}`)
	h.expectWorks(key, map[string]int32{cluster: replicas})
}

// expectQuiet waits until the hub writes an object and its Assignment no more: its own writes make it decide again.
func (h *testHub) expectQuiet(o client.Object, key kinds.Key) {
	h.t.Helper()
	versions, same := "", 0
	h.eventually("the hub to be idle", func(ctx context.Context) error {
		a := &v1alpha1.Assignment{}
		if err := errors.Join(h.client.Get(ctx, client.ObjectKeyFromObject(o), o), h.client.Get(ctx, key.Assignment(), a)); err != nil {
			return err
		}
		if now := o.GetResourceVersion() + " " + a.ResourceVersion; now != versions {
			versions, same = now, 0
		}
		if same++; same < 50 {
			return errNotYet
		}
		return nil
	})
}

// refuseStatuses makes the API server reject the hub's reports of a cluster.
func (h *testHub) refuseStatuses(cluster string) {
	h.t.Helper()
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "refuse-" + cluster}}
	p.Spec.FailurePolicy = new(admissionv1.Fail)
	p.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
		ResourceNames: []string{cluster},
		RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{v1alpha1.GroupName}, APIVersions: []string{"*"}, Resources: []string{"clusters/status"}},
		},
	}}}
	p.Spec.Validations = []admissionv1.Validation{{Expression: "false"}}
	h.create(p)
	b := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: p.Name}}
	b.Spec = admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: p.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}
	h.create(b)
	h.t.Cleanup(func() {
		_ = h.client.Delete(context.Background(), b)
		_ = h.client.Delete(context.Background(), p)
	})
	h.eventually("the API server to reject reports", func(ctx context.Context) error {
		c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
		err := h.client.Status().Patch(ctx, c, client.RawPatch(types.MergePatchType, []byte(`{}`)), client.DryRunAll)
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("%w: %w", errNotYet, err)
	})
}

// The hub reconciles a Cluster that is being deleted until its last finalizer is removed.
func TestDeletedClusterIsSeen(t *testing.T) {
	h := newTestHub(t)
	const name = "emptied"
	h.cluster(name, v1alpha1.ClusterSpec{})
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	finalizers := func(list string) {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+list+`}}`))
		if err := h.client.Patch(t.Context(), cluster, patch); err != nil {
			t.Fatal(err)
		}
	}
	finalizers(`["example.com/empty"]`)
	h.delete(cluster)
	h.silence(name)
	h.eventually("it to be unreachable", func(ctx context.Context) error {
		if err := h.client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil || clusters.IsReachable(cluster) {
			return errors.Join(errNotYet, err)
		}
		return nil
	})
	finalizers(`null`)
}

// (Safety 3) An object with a volume claim does not move: the condition names the claim. A claim is
// orphaned, not deleted, unless its policy deletes it.
func TestVolumeClaimsStay(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("volumes")
	for _, name := range []string{"volumes-east", "volumes-west"} {
		h.cluster(name, v1alpha1.ClusterSpec{})
	}
	h.create(volumeClaim(ns, "data"))
	d := deployment(ns, "db", "volumes-east", 1)
	d.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	h.create(d)
	key := deploymentKey(ns, "db")
	claim := kinds.Key{GroupKind: schema.GroupKind{Kind: "PersistentVolumeClaim"}, Namespace: ns, Name: "data"}
	h.expectWorks(key, map[string]int32{"volumes-east": 1})
	h.expectWorks(claim, map[string]int32{"volumes-east": 0})
	h.eventually("the cluster to have both", func(ctx context.Context) error {
		w := &v1alpha1.Work{}
		if err := h.client.Get(ctx, key.Work("volumes-east"), w); err != nil || len(w.Status.Manifests) == 0 {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil
	})
	check := h.unremoved(ns)
	h.annotate(d, "volumes-west")
	h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonVolumesRefused, "PersistentVolumeClaim data has data in volumes-east")
	h.expectWorks(key, map[string]int32{"volumes-east": 1})
	h.expectWorks(claim, map[string]int32{"volumes-east": 0})
	check()
	h.delete(d) // a user's order
	h.expectWorks(key, map[string]int32{})
	h.expectWorks(claim, map[string]int32{"volumes-east": 0})
	orphaned := h.policyOf(ns)
	h.delete(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "data"}})
	h.expectWorks(claim, map[string]int32{})
	if got := orphaned(); got != v1alpha1.OnDeleteOrphan {
		t.Errorf("removal of a claim: got policy %q, want %q", got, v1alpha1.OnDeleteOrphan)
	}
}

func volumeClaim(ns, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// policyOf watches for the first removal in a namespace, and returns its policy.
func (h *testHub) policyOf(ns string) func() v1alpha1.OnDelete {
	h.t.Helper()
	var none v1alpha1.WorkList
	if err := h.client.List(h.t.Context(), &none); err != nil {
		h.t.Fatal(err)
	}
	w, err := h.client.Watch(h.t.Context(), &v1alpha1.WorkList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: none.ResourceVersion}})
	if err != nil {
		h.t.Fatal(err)
	}
	return func() v1alpha1.OnDelete {
		defer w.Stop()
		for e := range w.ResultChan() {
			if one, ok := e.Object.(*v1alpha1.Work); ok && one.Spec.Source.Namespace == ns && one.Spec.Removal != nil {
				return one.Spec.Removal.Policy
			}
		}
		return ""
	}
}

// (Safety 6) The hub takes an order to remove back when the cluster is to have the object again before
// it has carried out the order.
func TestReturnTakesTheRemovalBack(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("returns")
	h.cluster("returns-west", v1alpha1.ClusterSpec{})
	h.create(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "returns-east"}, Spec: v1alpha1.ClusterSpec{Accepted: true}})
	east := v1alpha1.ClusterNamespacePrefix + "returns-east" // its agent acts when the test calls it
	h.eventually("its namespace", func(ctx context.Context) error {
		return h.client.Get(ctx, client.ObjectKey{Name: east}, &corev1.Namespace{})
	})
	h.create(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: east, Name: v1alpha1.HeartbeatLease},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Now()}, LeaseDurationSeconds: new(int32(3600))},
	})
	h.expectReachable("returns-east")
	o := configMap(ns, "web", "returns-east")
	h.create(o)
	key := configKey(ns, "web")
	h.expectWorks(key, map[string]int32{"returns-east": 0})
	if err := simulateAgent(t.Context(), h.client, east); err != nil {
		t.Fatal(err)
	}
	first := &v1alpha1.Work{}
	if err := h.client.Get(t.Context(), key.Work("returns-east"), first); err != nil {
		t.Fatal(err)
	}
	ordered := func(want bool) *v1alpha1.Work {
		w := &v1alpha1.Work{}
		h.eventually(fmt.Sprintf("the order to exist: %t", want), func(ctx context.Context) error {
			if err := h.client.Get(ctx, key.Work("returns-east"), w); err != nil {
				return err
			}
			if (w.Spec.Removal != nil) != want {
				return errNotYet
			}
			return nil
		})
		return w
	}
	h.annotate(o, "returns-west")
	removal := ordered(true).Spec.Removal
	if diff := cmp.Diff(first.Status.Manifests[0].UID, removal.UIDs[0]); diff != "" {
		t.Errorf("the order's UID: -reported +ordered\n%s", diff)
	}
	h.annotate(o, "returns-east")
	if w := ordered(false); w.UID != first.UID || w.Spec.Revision != first.Spec.Revision+2 {
		t.Errorf("got Work %s at revision %d, want %s at %d: the same Work goes on", w.UID, w.Spec.Revision, first.UID, first.Spec.Revision+2)
	}
}

// A drain moves at most maxConcurrentMoves objects at a time, names the objects that cannot leave, and ends
// when the cluster's agent has no AppliedWork left.
func TestDrain(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("drain")
	for _, name := range []string{"drain-east", "drain-west"} {
		h.cluster(name, v1alpha1.ClusterSpec{})
	}
	const objects = 5
	for i := range objects {
		d := deployment(ns, fmt.Sprintf("web-%d", i), "drain-east,drain-west", 2)
		d.Spec.Template.Spec.Containers[0].EnvFrom = nil
		h.create(d)
		h.expectWorks(deploymentKey(ns, d.Name), map[string]int32{"drain-east": 1, "drain-west": 1})
	}
	pinned := deployment(ns, "pinned", "drain-east", 1)
	pinned.Spec.Template.Spec.Containers[0].EnvFrom = nil
	h.create(pinned)
	h.expectWorks(deploymentKey(ns, "pinned"), map[string]int32{"drain-east": 1})
	most := h.leavers(ns, "drain-east")
	patch := `{"spec":{"drain":{"mode":"Move","maxConcurrentMoves":1}}}`
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "drain-east"}}
	if err := h.client.Patch(t.Context(), cluster, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
	for i := range objects {
		h.expectWorks(deploymentKey(ns, fmt.Sprintf("web-%d", i)), map[string]int32{"drain-west": 2})
	}
	if got := most(); got != 1 {
		t.Errorf("%d objects left at a time, want 1", got)
	}
	expectDrained := func(status metav1.ConditionStatus, reason, text string) {
		t.Helper()
		h.expectDrained("drain-east", status, reason, text)
	}
	expectDrained(metav1.ConditionFalse, v1alpha1.ReasonDrainBlocked, "1 of 1 objects cannot leave: Deployment drain/pinned (Pinned)")
	h.annotate(pinned, "drain-west")
	h.expectWorks(deploymentKey(ns, "pinned"), map[string]int32{"drain-west": 1})
	expectDrained(metav1.ConditionUnknown, "AppliedWorksUnknown", "the cluster's agent does not report how many AppliedWorks it has")
	records := func(n string) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster-drain-east", Name: v1alpha1.HeartbeatLease}}
		h.setAnnotation(lease, v1alpha1.AppliedWorksAnnotation, n)
	}
	records("2")
	expectDrained(metav1.ConditionFalse, v1alpha1.ReasonDrainBlocked, "2 AppliedWorks in the cluster have no Work at the hub")
	records("0")
	expectDrained(metav1.ConditionTrue, v1alpha1.ConditionDrained, "")
}

// expectDrained waits until a cluster has the condition Drained with this status.
func (h *testHub) expectDrained(name string, status metav1.ConditionStatus, reason, text string) {
	h.t.Helper()
	h.eventually("Drained to have the reason "+reason, func(ctx context.Context) error {
		cluster := &v1alpha1.Cluster{}
		if err := h.client.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
			return err
		}
		c := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionDrained)
		if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, text) {
			return fmt.Errorf("%w: %+v", errNotYet, c)
		}
		return nil
	})
}

// At the deadline the condition names the objects that are still in a draining cluster, although no move
// is refused.
func TestDrainDeadline(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("late")
	for _, name := range []string{"late-east", "late-west"} {
		h.cluster(name, v1alpha1.ClusterSpec{})
	}
	d := deployment(ns, "web", "late-east,late-west", 2)
	d.Spec.Template.Spec.Containers[0].EnvFrom = nil
	d.Annotations[holdKey] = ""
	h.create(d)
	h.expectWorks(deploymentKey(ns, "web"), map[string]int32{"late-east": 1, "late-west": 1})
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "late-east"}}
	drain := func(deadline time.Time) {
		t.Helper()
		patch := fmt.Sprintf(`{"spec":{"drain":{"mode":"Move","deadline":%q}}}`, deadline.UTC().Format(time.RFC3339))
		if err := h.client.Patch(t.Context(), cluster, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	drain(time.Now().Add(time.Hour))
	h.expectDrained("late-east", metav1.ConditionFalse, "Draining", "1 objects have not left yet")
	drain(time.Now().Add(2 * time.Second))
	h.expectDrained("late-east", metav1.ConditionFalse, v1alpha1.ReasonDrainBlocked,
		"1 objects have not left by spec.drain.deadline: Deployment late/web")
}

// leavers watches how many objects of a namespace leave a cluster at a time. Most returns the maximum.
func (h *testHub) leavers(ns, cluster string) (most func() int) {
	h.t.Helper()
	var none v1alpha1.AssignmentList
	if err := h.client.List(h.t.Context(), &none); err != nil {
		h.t.Fatal(err)
	}
	w, err := toolswatch.NewRetryWatcherWithContext(h.t.Context(), none.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return h.client.Watch(ctx, &v1alpha1.AssignmentList{}, &client.ListOptions{Raw: &o, Namespace: ns})
		},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	found := make(chan int, 1)
	go func() {
		leaving, most := map[string]bool{}, 0
		for e := range w.ResultChan() {
			a, ok := e.Object.(*v1alpha1.Assignment)
			if !ok {
				continue
			}
			delete(leaving, a.Name)
			for _, t := range a.Spec.Targets {
				if string(t.Cluster) == cluster && t.State != v1alpha1.TargetActive && e.Type != watch.Deleted {
					leaving[a.Name] = true
				}
			}
			most = max(most, len(leaving))
		}
		found <- most
	}()
	return func() int {
		w.Stop()
		return <-found
	}
}

// A dependency stays while the Assignment of its dependent is lost.
func TestDependenciesStayWithoutAnAssignment(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("unassigned")
	h.cluster("unassigned-east", v1alpha1.ClusterSpec{})
	h.create(configMap(ns, "web", ""))
	d := deployment(ns, "web", "unassigned-east", 1)
	h.create(d)
	key, config := deploymentKey(ns, "web"), configKey(ns, "web")
	h.expectWorks(config, map[string]int32{"unassigned-east": 0})
	check := h.unremoved(ns)
	for range 5 {
		a := &v1alpha1.Assignment{}
		h.eventually("the Assignment to exist", func(ctx context.Context) error { return h.client.Get(ctx, key.Assignment(), a) })
		h.delete(a)
	}
	h.eventually("the Assignment to exist again", func(ctx context.Context) error {
		a := &v1alpha1.Assignment{}
		if err := h.client.Get(ctx, key.Assignment(), a); err != nil || len(a.Spec.Dependencies) == 0 {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil
	})
	h.expectWorks(config, map[string]int32{"unassigned-east": 0})
	check()
	if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(d), &appsv1.Deployment{}); err != nil {
		t.Error(err)
	}
}

// (Safety 1) The dependencies of an object stay with it when it loses its policy.
func TestLostPolicyKeepsDependencies(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("lost-leader")
	h.cluster("leader-east", v1alpha1.ClusterSpec{})
	h.create(configMap(ns, "web", ""))
	d := deployment(ns, "web", "leader-east", 1)
	h.create(d)
	key, config := deploymentKey(ns, "web"), configKey(ns, "web")
	h.expectWorks(config, map[string]int32{"leader-east": 0})
	check := h.unremoved(ns)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"placement.patchbay.io/clusters":null}}}`))
	if err := h.client.Patch(t.Context(), d, patch); err != nil {
		t.Fatal(err)
	}
	h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonNoPolicy, "")
	h.delete(&v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Assignment().Namespace, Name: key.Assignment().Name}})
	h.create(configMap(ns, "later", "leader-east")) // the hub has had time to remove the others
	h.expectWorks(configKey(ns, "later"), map[string]int32{"leader-east": 0})
	h.expectWorks(config, map[string]int32{"leader-east": 0})
	check()
	h.annotate(d, "") // they leave together
	h.expectWorks(key, map[string]int32{})
	h.expectWorks(config, map[string]int32{})
}

// Works carry the hub's epoch and the term of the leader that wrote them.
func TestWorksCarryTheTerm(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("term")
	h.cluster("term-east", v1alpha1.ClusterSpec{})
	h.create(configMap(ns, "web", "term-east"))
	key := configKey(ns, "web")
	h.expectWorks(key, map[string]int32{"term-east": 0})
	stored, w := &corev1.ConfigMap{}, &v1alpha1.Work{}
	if err := h.client.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.TermConfigMap}, stored); err != nil {
		t.Fatal(err)
	}
	if err := h.client.Get(t.Context(), key.Work("term-east"), w); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(w.Spec.Epoch, " ", w.Spec.Term), stored.Data[term.EpochKey]+" "+stored.Data[term.NumberKey]; got != want {
		t.Errorf("Work: got epoch and term %s, want %s", got, want)
	}
}
