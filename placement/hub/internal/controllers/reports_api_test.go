// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

// drivenCluster is a Cluster whose agent does what the test says.
type drivenCluster struct {
	*testHub

	name, ns string
}

// drivenCluster creates a drivenCluster whose clock the hub knows.
func (h *testHub) drivenCluster(name string) *drivenCluster {
	h.t.Helper()
	c := &drivenCluster{testHub: h, name: name, ns: h.idleCluster(name, v1alpha1.ClusterSpec{})}
	for range 4 {
		c.beat(time.Now(), "0s")
	}
	return c
}

// beat sends a heartbeat that was written at a time.
func (c *drivenCluster) beat(written time.Time, delay string) {
	c.t.Helper()
	if err := renewLease(c.t.Context(), c.client, c.ns, written, delay); err != nil {
		c.t.Fatal(err)
	}
}

// keepBeating sends heartbeats until the test ends.
func (c *drivenCluster) keepBeating() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = renewLease(ctx, c.client, c.ns, time.Now(), "0s")
			select {
			case <-ctx.Done():
			case <-time.After(stableInTests):
			}
		}
	}()
	c.t.Cleanup(func() { cancel(); <-done })
}

// report reports that this many of the requested replicas are available.
func (c *drivenCluster) report(k kinds.Key, available int32) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%s to report %d replicas", c.name, available), func(ctx context.Context) error {
		w := &v1alpha1.Work{}
		if err := c.client.Get(ctx, k.Work(c.name), w); err != nil {
			return err
		}
		requested, _ := scope.RequestedReplicas(w)
		w.Status = simulatedStatus(w)
		w.Status.Manifests[0].Ready = available == requested
		w.Status.Manifests[0].Status = &runtime.RawExtension{Raw: fmt.Appendf(nil,
			`{"observedGeneration":%d,"replicas":%d,"updatedReplicas":%[2]d,"readyReplicas":%[3]d,"availableReplicas":%[3]d}`, w.Spec.Revision, requested, available)}
		return c.client.Status().Update(ctx, w)
	})
}

// deploymentIn creates a Deployment of 4 replicas in one cluster, and returns a function that moves it to another.
func (h *testHub) deploymentIn(ns, from string, move v1alpha1.MovePolicy) (key kinds.Key, moveTo func(cluster string)) {
	h.t.Helper()
	p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: v1alpha1.PlacementSpec{
		Objects:  []v1alpha1.ObjectSelector{{Group: "apps", Kind: "Deployment"}},
		Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{v1alpha1.ClusterName(from)}}, Move: move,
	}}
	h.create(p)
	d := deployment(ns, "web", "", 4)
	d.Annotations = nil
	h.create(d)
	key = deploymentKey(ns, "web")
	h.expectWorks(key, map[string]int32{from: 4})
	return key, func(cluster string) {
		h.t.Helper()
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"clusters":{"names":[%q]}}}`, cluster))
		if err := h.client.Patch(h.t.Context(), p, patch); err != nil {
			h.t.Fatal(err)
		}
	}
}

// One report that replicas are available replaces no others. Two reports, or a report and a heartbeat, that are
// move.stable apart do.
func TestReportsMustLast(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("lasting")
	h.cluster("lasting-east", v1alpha1.ClusterSpec{})
	west := h.drivenCluster("lasting-west")
	key, moveTo := h.deploymentIn(ns, "lasting-east", v1alpha1.MovePolicy{Stable: &metav1.Duration{Duration: 2 * time.Second}})
	moveTo("lasting-west")
	both := map[string]int32{"lasting-east": 4, "lasting-west": 4}
	h.expectWorks(key, both)
	west.report(key, 4)
	west.beat(time.Now(), "0s")
	h.quiet(ns, "lasting-", 4*time.Second)
	h.expectWorks(key, both)
	west.keepBeating()
	h.expectWorks(key, map[string]int32{"lasting-west": 4})
}

// The last report of a cluster whose connection was cut may be of long ago: its replicas may have failed meanwhile.
// It counts when the agent says that it has nothing else to report.
func TestReturnedClusterIsNotTrustedAtOnce(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("returned")
	h.cluster("returned-east", v1alpha1.ClusterSpec{})
	west := h.drivenCluster("returned-west")
	key, moveTo := h.deploymentIn(ns, "returned-east", v1alpha1.MovePolicy{Stable: &metav1.Duration{Duration: time.Second}})
	moveTo("returned-west")
	both := map[string]int32{"returned-east": 4, "returned-west": 4}
	h.expectWorks(key, both)
	west.report(key, 4)
	cut := time.Now()
	h.quiet(ns, "returned-", 3*time.Second)
	west.beat(cut.Add(time.Millisecond), "0s") // it was written before the connection broke, and comes now
	h.quiet(ns, "returned-", 2*time.Second)
	h.expectWorks(key, both)
	west.beat(time.Now(), "1m") // the failure of the replicas is not reported yet
	h.quiet(ns, "returned-", 2*time.Second)
	h.expectWorks(key, both)
	west.beat(time.Now(), "") // the agent cannot read its cluster
	h.quiet(ns, "returned-", 2*time.Second)
	h.expectWorks(key, both)
	west.report(key, 0)
	west.keepBeating()
	h.quiet(ns, "returned-", 2*time.Second)
	h.expectWorks(key, both)
	west.report(key, 4)
	h.expectWorks(key, map[string]int32{"returned-west": 4})
}

// Replicas that fail in the new cluster bring those of the old one back, until it has removed the object.
func TestMoveRollsBack(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("rollback")
	h.cluster("rollback-east", v1alpha1.ClusterSpec{})
	west := h.drivenCluster("rollback-west")
	west.keepBeating()
	key, moveTo := h.deploymentIn(ns, "rollback-east", v1alpha1.MovePolicy{Settle: &metav1.Duration{Duration: time.Hour}})
	moveTo("rollback-west")
	h.expectWorks(key, map[string]int32{"rollback-east": 4, "rollback-west": 4})
	west.report(key, 4)
	h.expectWorks(key, map[string]int32{"rollback-east": 0, "rollback-west": 4})
	west.report(key, 1)
	h.expectWorks(key, map[string]int32{"rollback-east": 3, "rollback-west": 4})
	h.expectEvent(ns, "Deployment", "web", v1alpha1.ReasonRolledBack,
		"too few replicas are available in rollback-west: gave back 3 to rollback-east. Reports must say for 1s from now on that replicas are available")
	a := &v1alpha1.Assignment{}
	if err := h.client.Get(t.Context(), key.Assignment(), a); err != nil {
		t.Fatal(err)
	}
	if got := a.Spec.Decision.Rollbacks; got != 1 {
		t.Errorf("rollbacks: got %d, want 1", got)
	}
	west.report(key, 4)
	h.expectWorks(key, map[string]int32{"rollback-east": 0, "rollback-west": 4})
}
