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
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
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
)

// unremoved watches that no Work of a namespace's objects is ordered removed, or goes. Its
// answer ends it.
func (b *bench) unremoved(ns string) (check func()) {
	b.t.Helper()
	var none v1alpha1.WorkList
	if err := b.client.List(b.t.Context(), &none); err != nil {
		b.t.Fatal(err)
	}
	w, err := toolswatch.NewRetryWatcherWithContext(b.t.Context(), none.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return b.client.Watch(ctx, &v1alpha1.WorkList{}, &client.ListOptions{Raw: &o})
		},
	})
	if err != nil {
		b.t.Fatal(err)
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
		b.t.Helper()
		w.Stop()
		for _, name := range <-found {
			b.t.Errorf("Work %s was ordered removed", name)
		}
	}
}

func (b *bench) delete(o client.Object) {
	b.t.Helper()
	if err := b.client.Delete(b.t.Context(), o); err != nil {
		b.t.Fatal(err)
	}
}

func configMap(ns, name, clusters string) *corev1.ConfigMap {
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": name}}}
	if clusters != "" {
		o.Annotations = map[string]string{v1alpha1.ClustersAnnotation: clusters}
	}
	return o
}

func configKey(ns, name string) Key {
	return Key{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Namespace: ns, Name: name}
}

// (Safety 1) An object whose policy is lost stays in its clusters, in whatever way it was lost,
// and says so. A person's order removes it.
func TestLostPolicyRemovesNothing(t *testing.T) {
	b := newBench(t)
	b.cluster("lost-east", v1alpha1.ClusterSpec{})
	east := v1alpha1.PlacementSpec{Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"lost-east"}}}
	selecting := east
	selecting.Objects = []v1alpha1.ObjectSelector{{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	removing := selecting
	removing.OnUnselected = v1alpha1.OnUnselectedRemove
	relabel := func(o client.Object) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"app":"other"}}}`))
		if err := b.client.Patch(t.Context(), o, patch); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		reason  string
		policy  v1alpha1.PlacementSpec
		lose    func(o, policy client.Object)
		removed bool
	}{
		"deleted":              {"A policy that is deleted orders nothing.", east, func(_, p client.Object) { b.delete(p) }, false},
		"deleted, with Remove": {"Nor does one that removes what it no longer selects.", removing, func(_, p client.Object) { b.delete(p) }, false},
		"relabelled":           {"An object that its policy no longer selects stays.", selecting, func(o, _ client.Object) { relabel(o) }, false},
		"relabelled, with Remove": {
			"Unless the policy says that it goes.", removing, func(o, _ client.Object) { relabel(o) }, true,
		},
		"without clusters": {
			"A policy without clusters is no order either.", east, func(_, p client.Object) {
				if err := b.client.Patch(t.Context(), p, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"clusters":null}}`))); err != nil {
					t.Fatal(err)
				}
			}, false,
		},
	}
	i := 0
	for name, tc := range cases {
		ns := b.namespace(fmt.Sprintf("lost-%d", i))
		i++
		t.Run(name, func(t *testing.T) {
			b := &bench{t: t, client: b.client, patience: b.patience}
			policy := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"}, Spec: tc.policy}
			b.create(policy)
			o := configMap(ns, "web", "")
			b.create(o)
			key := configKey(ns, "web")
			b.runs(key, map[string]int32{"lost-east": 0})
			check := b.unremoved(ns)
			tc.lose(o, policy)
			if tc.removed {
				b.runs(key, map[string]int32{})
				return
			}
			reason := v1alpha1.ReasonNoPolicy
			if name == "without clusters" {
				reason = v1alpha1.ReasonNoClusterSelected
			}
			b.says(key, v1alpha1.ConditionPlaced, reason, "")
			b.create(configMap(ns, "later", "lost-east")) // the hub has had time to do worse
			b.runs(configKey(ns, "later"), map[string]int32{"lost-east": 0})
			check()
			b.annotate(o, "")
			b.runs(key, map[string]int32{})
			b.states(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonNoClustersRequested, "")
		})
	}
}

// (Safety 1) What a policy said of deletion holds when the policy is gone and a person orders the
// removal by the annotation.
func TestLostPolicyStillOrphans(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("still-orphans")
	b.cluster("orphans-east", v1alpha1.ClusterSpec{})
	p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"}, Spec: v1alpha1.PlacementSpec{
		Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"orphans-east"}}, OnDelete: v1alpha1.OnDeleteOrphan,
	}}
	b.create(p)
	o, key := configMap(ns, "web", ""), configKey(ns, "web")
	b.create(o)
	b.runs(key, map[string]int32{"orphans-east": 0})
	b.delete(p)
	b.says(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonNoPolicy, "")
	ordered := b.policyOf(ns)
	b.annotate(o, "")
	if got := ordered(); got != v1alpha1.OnDeleteOrphan {
		t.Errorf("removal: got policy %q, want %q, as the policy said", got, v1alpha1.OnDeleteOrphan)
	}
	b.runs(key, map[string]int32{})
}

// (Safety 1) A ClusterPlacement that a namespace loses its label for, and an annotation that is
// taken off, are lost policies, too.
func TestUnselectedNamespaceKeepsObjects(t *testing.T) {
	b := newBench(t)
	b.cluster("unselected-east", v1alpha1.ClusterSpec{})
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "unselected", Labels: map[string]string{"placed": "true"}}}
	b.create(ns)
	policy := &v1alpha1.ClusterPlacement{ObjectMeta: metav1.ObjectMeta{Name: "unselected"}}
	policy.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"placed": "true"}}
	policy.Spec.Objects = []v1alpha1.ObjectSelector{{Kind: "ConfigMap", Names: []v1alpha1.ObjectName{"web"}}}
	policy.Spec.Clusters.Names = []v1alpha1.ClusterName{"unselected-east"}
	b.create(policy)
	t.Cleanup(func() { _ = b.client.Delete(context.Background(), policy) })
	own := configMap(ns.Name, "own", "unselected-east")
	b.create(configMap(ns.Name, "web", ""))
	b.create(own)
	for _, name := range []string{"web", "own"} {
		b.runs(configKey(ns.Name, name), map[string]int32{"unselected-east": 0})
	}
	check := b.unremoved(ns.Name)
	for o, patch := range map[client.Object]string{
		ns:  `{"metadata":{"labels":{"placed":null}}}`,
		own: `{"metadata":{"annotations":{"placement.patchbay.io/clusters":null}}}`,
	} {
		if err := b.client.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"web", "own"} {
		b.says(configKey(ns.Name, name), v1alpha1.ConditionPlaced, v1alpha1.ReasonNoPolicy, "kubectl patchbay remove")
	}
	check()
}

// (Safety 6) A Cluster that is deleted and made again removes nothing that it had.
func TestRecreatedClusterRemovesNothing(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("recreated")
	labelled := func(name string) {
		c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := b.client.Patch(t.Context(), c, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"pool":"recreated"}}}`))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"recreated-east", "recreated-west"} {
		b.cluster(name, v1alpha1.ClusterSpec{})
		labelled(name)
	}
	b.create(&v1alpha1.Placement{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"},
		Spec: v1alpha1.PlacementSpec{Clusters: v1alpha1.ClusterChoice{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "recreated"}},
		}},
	})
	b.create(configMap(ns, "web", ""))
	key := configKey(ns, "web")
	both := map[string]int32{"recreated-east": 0, "recreated-west": 0}
	b.runs(key, both)
	check := b.unremoved(ns)
	b.delete(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "recreated-east"}})
	b.eventually("the hub to plan without it", func(ctx context.Context) error {
		a := &v1alpha1.Assignment{}
		if err := b.client.Get(ctx, key.assignment(), a); err != nil {
			return err
		}
		for _, t := range a.Spec.Targets {
			if t.Cluster == "recreated-east" && t.State == v1alpha1.TargetDraining {
				return nil
			}
		}
		return fmt.Errorf("%w: %+v", errNotYet, a.Spec.Targets)
	})
	b.create(&v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "recreated-east", Labels: map[string]string{"pool": "recreated"}}, Spec: v1alpha1.ClusterSpec{Accepted: true},
	})
	b.eventually("both to have it again", func(ctx context.Context) error {
		a := &v1alpha1.Assignment{}
		if err := b.client.Get(ctx, key.assignment(), a); err != nil {
			return err
		}
		for _, t := range a.Spec.Targets {
			if t.State != v1alpha1.TargetActive {
				return fmt.Errorf("%w: %+v", errNotYet, a.Spec.Targets)
			}
		}
		return nil
	})
	b.runs(key, both)
	check()
}

// (Safety 6) A Cluster whose object is being deleted, as Argo CD and kubectl's --cascade=foreground
// do, and one that is not accepted any more, keep what they have.
func TestClusterThatGoesOutRemovesNothing(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("goes-out")
	for _, name := range []string{"out-east", "out-west", "out-north"} {
		b.cluster(name, v1alpha1.ClusterSpec{})
		b.patch(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, `{"metadata":{"labels":{"pool":"out"}}}`)
	}
	b.create(&v1alpha1.Placement{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"},
		Spec: v1alpha1.PlacementSpec{Clusters: v1alpha1.ClusterChoice{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "out"}},
		}},
	})
	b.create(configMap(ns, "web", ""))
	all := map[string]int32{"out-east": 0, "out-west": 0, "out-north": 0}
	b.runs(configKey(ns, "web"), all)
	check := b.unremoved(ns)
	east := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "out-east"}}
	b.patch(east, `{"metadata":{"finalizers":["example.com/test"]}}`)
	t.Cleanup(func() {
		_ = b.client.Patch(context.Background(), east, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	})
	b.delete(east)
	b.patch(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "out-north"}}, `{"spec":{"accepted":false}}`)
	later := map[string]int32{"out-west": 0}
	b.create(configMap(ns, "later", "")) // the hub has had time to do worse
	b.runs(configKey(ns, "later"), later)
	b.runs(configKey(ns, "web"), all)
	check()
}

// patch changes an object by a JSON merge patch (RFC 7386).
func (b *bench) patch(o client.Object, change string) {
	b.t.Helper()
	if err := b.client.Patch(b.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(change))); err != nil {
		b.t.Fatal(err)
	}
}

// silence makes a cluster's heartbeat one that has run out. To change its time would be a sign of
// life, whatever that time is.
func (b *bench) silence(name string) {
	b.t.Helper()
	patch := []byte(`{"spec":{"leaseDurationSeconds":1}}`)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ClusterNamespacePrefix + name, Name: v1alpha1.HeartbeatLease}}
	if err := b.client.Patch(b.t.Context(), lease, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		b.t.Fatal(err)
	}
}

// (Safety 2) A cluster that was accepted and has no agent gets nothing, and one that has fallen
// silent keeps what it has: growth goes to the others. Who waits for such a cluster says so.
func TestUnreachableClustersGetNothing(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("silent")
	for _, name := range []string{"silent-east", "silent-west"} {
		b.cluster(name, v1alpha1.ClusterSpec{})
	}
	b.create(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "silent-never"}, Spec: v1alpha1.ClusterSpec{Accepted: true}})
	d := deployment(ns, "web", "silent-east,silent-west,silent-never", 6)
	b.create(d)
	key := deploymentKey(ns, "web")
	b.runs(key, map[string]int32{"silent-east": 3, "silent-west": 3})
	alone := deployment(ns, "alone", "silent-never", 2)
	b.create(alone)
	b.says(deploymentKey(ns, "alone"), v1alpha1.ConditionPlaced, v1alpha1.ReasonWaitingForCluster, "silent-never has not reported yet")
	b.silence("silent-west")
	b.eventually("silent-west to be silent", func(ctx context.Context) error {
		c := &v1alpha1.Cluster{}
		if err := b.client.Get(ctx, client.ObjectKey{Name: "silent-west"}, c); err != nil || reachable(c) {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil
	})
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":9}}`))
	if err := b.client.Patch(t.Context(), d, patch); err != nil {
		t.Fatal(err)
	}
	b.runs(key, map[string]int32{"silent-east": 6, "silent-west": 3})
	b.runs(deploymentKey(ns, "alone"), map[string]int32{})
}

// A Cluster that somebody's finalizer keeps until it is empty is looked at until then.
func TestDeletedClusterIsSeen(t *testing.T) {
	b := newBench(t)
	const name = "emptied"
	b.cluster(name, v1alpha1.ClusterSpec{})
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	finalizers := func(list string) {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+list+`}}`))
		if err := b.client.Patch(t.Context(), cluster, patch); err != nil {
			t.Fatal(err)
		}
	}
	finalizers(`["example.com/empty"]`)
	b.delete(cluster)
	b.silence(name)
	b.eventually("it to be silent", func(ctx context.Context) error {
		if err := b.client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil || reachable(cluster) {
			return errors.Join(errNotYet, err)
		}
		return nil
	})
	finalizers(`null`)
}

// (Safety 3) What has a volume claim with data stays where it is: a move is refused with the
// claim's name, and a claim is orphaned, not deleted, unless its policy says so.
func TestVolumeClaimsStay(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("volumes")
	for _, name := range []string{"volumes-east", "volumes-west"} {
		b.cluster(name, v1alpha1.ClusterSpec{})
	}
	b.create(volumeClaim(ns, "data"))
	d := deployment(ns, "db", "volumes-east", 1)
	d.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	b.create(d)
	key := deploymentKey(ns, "db")
	claim := Key{GroupKind: schema.GroupKind{Kind: "PersistentVolumeClaim"}, Namespace: ns, Name: "data"}
	b.runs(key, map[string]int32{"volumes-east": 1})
	b.runs(claim, map[string]int32{"volumes-east": 0})
	b.eventually("the cluster to have both", func(ctx context.Context) error {
		w := &v1alpha1.Work{}
		if err := b.client.Get(ctx, key.work("volumes-east"), w); err != nil || len(w.Status.Manifests) == 0 {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil
	})
	check := b.unremoved(ns)
	b.annotate(d, "volumes-west")
	b.says(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonVolumesRefused, "PersistentVolumeClaim data has data in volumes-east")
	b.runs(key, map[string]int32{"volumes-east": 1})
	b.runs(claim, map[string]int32{"volumes-east": 0})
	check()
	b.delete(d) // a person's order
	b.runs(key, map[string]int32{})
	b.runs(claim, map[string]int32{"volumes-east": 0})
	orphaned := b.policyOf(ns)
	b.delete(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "data"}})
	b.runs(claim, map[string]int32{})
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

// policyOf tells the policy of the first removal in a namespace.
func (b *bench) policyOf(ns string) func() v1alpha1.OnDelete {
	b.t.Helper()
	var none v1alpha1.WorkList
	if err := b.client.List(b.t.Context(), &none); err != nil {
		b.t.Fatal(err)
	}
	w, err := b.client.Watch(b.t.Context(), &v1alpha1.WorkList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: none.ResourceVersion}})
	if err != nil {
		b.t.Fatal(err)
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

// (Safety 6) A cluster that is to have an object again gets its removal taken back, while that
// is not carried out.
func TestReturnTakesTheRemovalBack(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("returns")
	b.cluster("returns-west", v1alpha1.ClusterSpec{})
	b.create(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "returns-east"}, Spec: v1alpha1.ClusterSpec{Accepted: true}})
	east := v1alpha1.ClusterNamespacePrefix + "returns-east" // its agent acts when the test says
	b.eventually("its namespace", func(ctx context.Context) error {
		return b.client.Get(ctx, client.ObjectKey{Name: east}, &corev1.Namespace{})
	})
	b.create(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: east, Name: v1alpha1.HeartbeatLease},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Now()}, LeaseDurationSeconds: new(int32(3600))},
	})
	b.reached("returns-east")
	o := configMap(ns, "web", "returns-east")
	b.create(o)
	key := configKey(ns, "web")
	b.runs(key, map[string]int32{"returns-east": 0})
	if err := play(t.Context(), b.client, east); err != nil {
		t.Fatal(err)
	}
	first := &v1alpha1.Work{}
	if err := b.client.Get(t.Context(), key.work("returns-east"), first); err != nil {
		t.Fatal(err)
	}
	ordered := func(want bool) *v1alpha1.Work {
		w := &v1alpha1.Work{}
		b.eventually(fmt.Sprintf("the order to be there: %t", want), func(ctx context.Context) error {
			if err := b.client.Get(ctx, key.work("returns-east"), w); err != nil {
				return err
			}
			if (w.Spec.Removal != nil) != want {
				return errNotYet
			}
			return nil
		})
		return w
	}
	b.annotate(o, "returns-west")
	removal := ordered(true).Spec.Removal
	if diff := cmp.Diff(first.Status.Manifests[0].UID, removal.UIDs[0]); diff != "" {
		t.Errorf("the order's UID: -reported +ordered\n%s", diff)
	}
	b.annotate(o, "returns-east")
	if w := ordered(false); w.UID != first.UID || w.Spec.Revision != first.Spec.Revision+2 {
		t.Errorf("got Work %s at revision %d, want %s at %d: the same Work goes on", w.UID, w.Spec.Revision, first.UID, first.Spec.Revision+2)
	}
}

// A drain moves as many objects at a time as it says, names what cannot leave, and is over when
// the cluster's agent has no record left.
func TestDrain(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("drain")
	for _, name := range []string{"drain-east", "drain-west"} {
		b.cluster(name, v1alpha1.ClusterSpec{})
	}
	const objects = 5
	for i := range objects {
		d := deployment(ns, fmt.Sprintf("web-%d", i), "drain-east,drain-west", 2)
		d.Spec.Template.Spec.Containers[0].EnvFrom = nil
		b.create(d)
		b.runs(deploymentKey(ns, d.Name), map[string]int32{"drain-east": 1, "drain-west": 1})
	}
	pinned := deployment(ns, "pinned", "drain-east", 1)
	pinned.Spec.Template.Spec.Containers[0].EnvFrom = nil
	b.create(pinned)
	b.runs(deploymentKey(ns, "pinned"), map[string]int32{"drain-east": 1})
	most := b.leavers(ns, "drain-east")
	patch := `{"spec":{"drain":{"mode":"Move","maxConcurrentMoves":1}}}`
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "drain-east"}}
	if err := b.client.Patch(t.Context(), cluster, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
	for i := range objects {
		b.runs(deploymentKey(ns, fmt.Sprintf("web-%d", i)), map[string]int32{"drain-west": 2})
	}
	if got := most(); got != 1 {
		t.Errorf("%d objects left at a time, want 1", got)
	}
	drained := func(status metav1.ConditionStatus, reason, text string) {
		t.Helper()
		b.drained("drain-east", status, reason, text)
	}
	drained(metav1.ConditionFalse, v1alpha1.ReasonDrainBlocked, "1 of 1 objects cannot leave: Deployment drain/pinned (Unschedulable)")
	b.annotate(pinned, "drain-west")
	b.runs(deploymentKey(ns, "pinned"), map[string]int32{"drain-west": 1})
	drained(metav1.ConditionUnknown, "NoReport", "the cluster's agent does not report how many AppliedWorks it has")
	records := func(n string) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster-drain-east", Name: v1alpha1.HeartbeatLease}}
		b.mark(lease, v1alpha1.AppliedWorksAnnotation, n)
	}
	records("2")
	drained(metav1.ConditionFalse, v1alpha1.ReasonDrainBlocked, "2 AppliedWorks in the cluster have no Work at the hub")
	records("0")
	drained(metav1.ConditionTrue, v1alpha1.ConditionDrained, "")
}

// drained waits until a cluster has the condition Drained.
func (b *bench) drained(name string, status metav1.ConditionStatus, reason, text string) {
	b.t.Helper()
	b.eventually("Drained to say "+reason, func(ctx context.Context) error {
		cluster := &v1alpha1.Cluster{}
		if err := b.client.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
			return err
		}
		c := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionDrained)
		if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, text) {
			return fmt.Errorf("%w: %+v", errNotYet, c)
		}
		return nil
	})
}

// What is still in a drained cluster at the deadline is named, though nothing refuses the move.
func TestDrainDeadline(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("late")
	for _, name := range []string{"late-east", "late-west"} {
		b.cluster(name, v1alpha1.ClusterSpec{})
	}
	d := deployment(ns, "web", "late-east,late-west", 2)
	d.Spec.Template.Spec.Containers[0].EnvFrom = nil
	d.Annotations[holdKey] = ""
	b.create(d)
	b.runs(deploymentKey(ns, "web"), map[string]int32{"late-east": 1, "late-west": 1})
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "late-east"}}
	drain := func(deadline time.Time) {
		t.Helper()
		patch := fmt.Sprintf(`{"spec":{"drain":{"mode":"Move","deadline":%q}}}`, deadline.UTC().Format(time.RFC3339))
		if err := b.client.Patch(t.Context(), cluster, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	drain(time.Now().Add(time.Hour))
	b.drained("late-east", metav1.ConditionFalse, "Draining", "1 objects have not left yet")
	drain(time.Now().Add(2 * time.Second))
	b.drained("late-east", metav1.ConditionFalse, v1alpha1.ReasonDrainBlocked,
		"1 objects have not left by spec.drain.deadline: Deployment late/web")
}

// leavers counts how many objects of a namespace leave a cluster at a time, at most.
func (b *bench) leavers(ns, cluster string) (most func() int) {
	b.t.Helper()
	var none v1alpha1.AssignmentList
	if err := b.client.List(b.t.Context(), &none); err != nil {
		b.t.Fatal(err)
	}
	w, err := toolswatch.NewRetryWatcherWithContext(b.t.Context(), none.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return b.client.Watch(ctx, &v1alpha1.AssignmentList{}, &client.ListOptions{Raw: &o, Namespace: ns})
		},
	})
	if err != nil {
		b.t.Fatal(err)
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

// An object that another one takes along stays while that one's Assignment is lost.
func TestFollowersStayWithoutAnAssignment(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("unassigned")
	b.cluster("unassigned-east", v1alpha1.ClusterSpec{})
	b.create(configMap(ns, "web", ""))
	d := deployment(ns, "web", "unassigned-east", 1)
	b.create(d)
	key, config := deploymentKey(ns, "web"), configKey(ns, "web")
	b.runs(config, map[string]int32{"unassigned-east": 0})
	check := b.unremoved(ns)
	for range 5 {
		a := &v1alpha1.Assignment{}
		b.eventually("the Assignment to be there", func(ctx context.Context) error { return b.client.Get(ctx, key.assignment(), a) })
		b.delete(a)
	}
	b.eventually("the Assignment to be there again", func(ctx context.Context) error {
		a := &v1alpha1.Assignment{}
		if err := b.client.Get(ctx, key.assignment(), a); err != nil || len(a.Spec.Dependencies) == 0 {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil
	})
	b.runs(config, map[string]int32{"unassigned-east": 0})
	check()
	if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(d), &appsv1.Deployment{}); err != nil {
		t.Error(err)
	}
}

// (Safety 1) What an object takes along stays with it when the object loses its policy.
func TestLostPolicyKeepsFollowers(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("lost-leader")
	b.cluster("leader-east", v1alpha1.ClusterSpec{})
	b.create(configMap(ns, "web", ""))
	d := deployment(ns, "web", "leader-east", 1)
	b.create(d)
	key, config := deploymentKey(ns, "web"), configKey(ns, "web")
	b.runs(config, map[string]int32{"leader-east": 0})
	check := b.unremoved(ns)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"placement.patchbay.io/clusters":null}}}`))
	if err := b.client.Patch(t.Context(), d, patch); err != nil {
		t.Fatal(err)
	}
	b.says(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonNoPolicy, "")
	b.delete(&v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Namespace: key.assignment().Namespace, Name: key.assignment().Name}})
	b.create(configMap(ns, "later", "leader-east")) // the hub has had time to do worse
	b.runs(configKey(ns, "later"), map[string]int32{"leader-east": 0})
	b.runs(config, map[string]int32{"leader-east": 0})
	check()
	b.annotate(d, "") // they leave together
	b.runs(key, map[string]int32{})
	b.runs(config, map[string]int32{})
}

// Works carry the hub's epoch and the term of the leader that wrote them.
func TestWorksCarryTheTerm(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("term")
	b.cluster("term-east", v1alpha1.ClusterSpec{})
	b.create(configMap(ns, "web", "term-east"))
	key := configKey(ns, "web")
	b.runs(key, map[string]int32{"term-east": 0})
	stored, w := &corev1.ConfigMap{}, &v1alpha1.Work{}
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.TermConfigMap}, stored); err != nil {
		t.Fatal(err)
	}
	if err := b.client.Get(t.Context(), key.work("term-east"), w); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(w.Spec.Epoch, " ", w.Spec.Term), stored.Data[epochKey]+" "+stored.Data[termKey]; got != want {
		t.Errorf("Work: got epoch and term %s, want %s", got, want)
	}
}
