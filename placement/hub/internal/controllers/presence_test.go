// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// An agent's clock says nothing of the agent: what counts is when the hub sees its heartbeat change.
func TestHeartbeatsCountFromWhenTheyAreSeen(t *testing.T) {
	t.Parallel()
	start := time.Unix(100_000, 0)
	type look struct{ at, renewed time.Duration } // since start, the second by the agent's clock
	for name, tc := range map[string]struct {
		reason string
		looks  []look
		want   time.Duration // that is left of 40 s after the last look
	}{
		"Agent behind":         {"A clock that is two minutes behind is no silence.", []look{{0, -120 * time.Second}, {10 * time.Second, -110 * time.Second}}, 40 * time.Second},
		"Agent ahead":          {"An agent that is an hour ahead and dies is silent after 40 s.", []look{{0, time.Hour}, {30 * time.Second, time.Hour}}, 10 * time.Second},
		"Agent ahead and dead": {"So it is at once.", []look{{0, time.Hour}, {40 * time.Second, time.Hour}}, 0},
		"First look, fresh":    {"A new leader takes the time that it finds.", []look{{0, -15 * time.Second}}, 25 * time.Second},
		"First look, old":      {"An old one is silence until it changes.", []look{{0, -41 * time.Second}}, 0},
		"First look, future":   {"What is yet to come counts from now.", []look{{0, time.Hour}}, 40 * time.Second},
		"Restored":             {"A heartbeat of a backup is no sign of life.", []look{{0, 0}, {30 * time.Second, -time.Minute}}, 10 * time.Second},
		"Set back":             {"A clock that is set right counts from then on.", []look{{0, time.Hour}, {50 * time.Second, -time.Hour}, {time.Minute, 10*time.Second - time.Hour}}, 40 * time.Second},
		"Unchanged":            {"To look again is no sign of life.", []look{{0, 0}, {10 * time.Second, 0}, {20 * time.Second, 0}}, 20 * time.Second},
		"New cluster":          {"Of a new cluster the hub has seen that there was none.", []look{{0, -1}, {time.Second, -120 * time.Second}}, 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p presence
			var b beat
			var now time.Time
			for _, l := range tc.looks {
				lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(40))}}
				if l.renewed != -1 {
					lease.Spec.RenewTime = &metav1.MicroTime{Time: start.Add(l.renewed)}
				}
				now = start.Add(l.at)
				b = p.observe("east", lease, false, now)
			}
			if got := b.left(now); got != tc.want {
				t.Errorf("%s\nleft: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
	var p presence
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: start}}}
	if got := p.observe("east", lease, true, start).left(start); got != 0 {
		t.Errorf("a heartbeat in somebody else's namespace holds for %v, want 0", got)
	}
}

// storage is a cache that has what an API server has.
type storage struct {
	client.Client
	cache.Informers
}

// A new leader looks at the heartbeats before it plans: what its predecessor has left in the
// Clusters' conditions may be old.
func TestNewLeaderPlansWithFreshHeartbeats(t *testing.T) {
	t.Parallel()
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(100_000, 0)
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "hub"}},
		&v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}, // a hub with none asks who else runs here
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
	member("died", metav1.ConditionTrue, "Heartbeat", -time.Hour)
	member("alive", metav1.ConditionTrue, "Heartbeat", -time.Second)
	member("back", metav1.ConditionFalse, reasonSilent, -time.Second)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	cached := storage{Client: c}
	h := &hub{
		cached: cached, direct: c, access: &access{cached: cached, direct: c},
		now: func() time.Time { return now }, ledger: newLedger(), drains: newDrains(),
	}
	if err := h.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := &pass{hub: h}
	if err := p.inventory(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]policy.Reachability{"died": policy.NotReporting, "alive": policy.Reachable, "back": policy.Reachable} {
		if got := reach(p.clusters[name]); got != want {
			t.Errorf("%s: got %v, want %v: %+v", name, got, want, p.clusters[name].Status.Conditions)
		}
	}
}
