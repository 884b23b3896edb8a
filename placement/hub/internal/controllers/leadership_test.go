// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/reports"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/term"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// A new leader observes the heartbeats before its first decision: the conditions that its predecessor
// stored may be old.
func TestNewLeaderObservesHeartbeats(t *testing.T) {
	t.Parallel()
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(100_000, 0)
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "hub"}},
		&v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}, // a hub without any awaits the preflight
	}
	member := func(name string, stored metav1.ConditionStatus, reason string, renewed time.Duration) {
		ns := v1alpha1.ClusterNamespacePrefix + name
		objects = append(objects,
			&v1alpha1.Cluster{
				ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1alpha1.ClusterSpec{Accepted: true},
				Status: v1alpha1.ClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: stored, Reason: reason}}},
			},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Annotations: map[string]string{v1alpha1.ClusterUIDAnnotation: name}}},
			&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.HeartbeatLease},
				Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: now.Add(renewed)}, LeaseDurationSeconds: new(int32(40))},
			})
	}
	member("died", metav1.ConditionTrue, "HeartbeatReceived", -time.Hour)
	member("alive", metav1.ConditionTrue, "HeartbeatReceived", -time.Second)
	member("back", metav1.ConditionFalse, "HeartbeatLost", -time.Second)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	clock := func() time.Time { return now }
	heartbeats := clusters.NewHeartbeats(c, c, clock)
	l := &leadership{
		cached: c, direct: c, now: clock, signer: &term.Signer{}, capacity: limits.NewCapacity(time.Now), heartbeats: heartbeats, reports: reports.NewTracker(time.Now),
	}
	if err := l.ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	inventory, err := heartbeats.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]policy.Reachability{"died": policy.NotReporting, "alive": policy.Reachable, "back": policy.Reachable} {
		if got := clusters.ReachabilityOf(inventory.Clusters[name]); got != want {
			t.Errorf("%s: got %v, want %v: %+v", name, got, want, inventory.Clusters[name].Status.Conditions)
		}
	}
	if !inventory.Unstored {
		t.Error("Unstored: got false, want true: died and back differ from what is stored")
	}
}
