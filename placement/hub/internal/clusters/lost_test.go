// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// A declaration holds until the cluster reports again, and never for one that reports.
func TestDeclaredLostCondition(t *testing.T) {
	t.Parallel()
	now := time.Unix(100_000, 0)
	last := now.Add(-time.Hour)
	expired := func(renewed time.Time) Heartbeat {
		return Heartbeat{renewTime: renewed, newest: renewed, observed: last, duration: 40 * time.Second}
	}
	at := func(t time.Time) *metav1.MicroTime { return &metav1.MicroTime{Time: t} }
	other := last.Add(time.Microsecond)
	for name, tc := range map[string]struct {
		reason    string
		reachable string            // reason of the stored condition Reachable
		stored    *metav1.MicroTime // status.lastHeartbeat
		heartbeat Heartbeat
		lost      bool
	}{
		"silent":           {"It has not reported since.", v1alpha1.ReasonHeartbeatLost, at(last), expired(last), true},
		"reports":          {"A client has declared it lost against the rules.", v1alpha1.ReasonHeartbeatReceived, at(last), Heartbeat{renewTime: last, newest: last, observed: now, duration: 40 * time.Second}, false},
		"returned, silent": {"It has reported since, and may have started its workloads.", v1alpha1.ReasonHeartbeatLost, at(other), expired(other), false},
		"not stored yet":   {"This hub has seen that.", v1alpha1.ReasonHeartbeatLost, at(last), expired(other), false},
		"clock set back":   {"Another time is another heartbeat.", v1alpha1.ReasonHeartbeatLost, at(last), expired(last.Add(-time.Hour)), false},
		"Lease deleted":    {"The agent makes another one when it returns.", v1alpha1.ReasonHeartbeatLost, at(last), Heartbeat{}, true},
		"returned, gone":   {"Its Lease was deleted after it had reported: the hub stores none for a cluster that reports.", v1alpha1.ReasonHeartbeatLost, nil, Heartbeat{}, false},
		"returned, missed": {"The hub has stored since when it misses the Lease.", v1alpha1.ReasonHeartbeatLost, at(other), Heartbeat{}, false},
		"returned, old":    {"The Lease is that of a backup.", v1alpha1.ReasonHeartbeatLost, at(other), expired(last), false},
		"never joined":     {"There is nothing to lose.", v1alpha1.ReasonNeverJoined, at(last), Heartbeat{}, false},
		"taken":            {"The namespace is not the hub's: its heartbeat proves nothing.", v1alpha1.ReasonHeartbeatLost, at(last), Heartbeat{renewTime: last, newest: last, namespaceTaken: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east"}}
			c.Spec.DeclaredLost = &v1alpha1.DeclaredLost{LastHeartbeat: metav1.MicroTime{Time: last}}
			c.Status.LastHeartbeat = tc.stored
			c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionFalse, Reason: tc.reachable}}
			condition := declaredLostCondition(c, tc.heartbeat, now)
			want, says := v1alpha1.ReasonReportedSince, "kubectl patchbay cluster declare-lost east --undo"
			if tc.lost {
				want, says = v1alpha1.ReasonDeclaredLost, "That ends when it reports"
			}
			if condition.Reason != want || (condition.Status == metav1.ConditionTrue) != tc.lost || !strings.Contains(condition.Message, says) {
				t.Errorf("%s\ngot %+v, want the reason %s and %q", tc.reason, condition, want, says)
			}
		})
	}
}

// A declaration that has ended does not come back, whatever becomes of the Lease, and of the hub that saw the report.
func TestEndedDeclarationStaysEnded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason    string
		newLeader bool
		change    func(lease *coordinationv1.Lease, declared metav1.MicroTime)
	}{
		"Lease deleted":             {"The agent makes another one in a few seconds.", false, func(l *coordinationv1.Lease, _ metav1.MicroTime) { l.Spec = coordinationv1.LeaseSpec{} }},
		"Lease deleted, new leader": {"It has read no heartbeat.", true, func(l *coordinationv1.Lease, _ metav1.MicroTime) { l.Spec = coordinationv1.LeaseSpec{} }},
		"restored":                  {"A heartbeat of a backup is the declared one.", false, func(l *coordinationv1.Lease, at metav1.MicroTime) { l.Spec.RenewTime = &at }},
		"restored, new leader":      {"It knows only the old one.", true, func(l *coordinationv1.Lease, at metav1.MicroTime) { l.Spec.RenewTime = &at }},
		"silent":                    {"It may run what it had.", false, func(*coordinationv1.Lease, metav1.MicroTime) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInventoryAt(t, "a", "b", "c", "d")
			declared := metav1.MicroTime{Time: in.now}
			in.pass(90*time.Second, "b", "c", "d")
			in.storeHeartbeat("a", &declared)
			if !in.isDeclaredLost("a") {
				t.Fatal("a is not lost after it was declared lost")
			}
			in.beat("a")
			in.storeHeartbeat("a", nil)
			lease := &coordinationv1.Lease{}
			if err := in.client.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.ClusterNamespacePrefix + "a", Name: v1alpha1.HeartbeatLease}, lease); err != nil {
				t.Fatal(err)
			}
			tc.change(lease, declared)
			if err := in.client.Update(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if tc.newLeader {
					in.lead()
				}
				if in.storeHeartbeat("a", nil); in.isDeclaredLost("a") {
					t.Errorf("%s\na is declared lost again after %s", tc.reason, in.now.Sub(declared.Time))
				}
				in.pass(time.Minute, "b", "c", "d")
			}
		})
	}
}

// storeHeartbeat observes a cluster, and stores what its reconciler does. It declares the cluster lost if that is not nil.
func (in *inventoryAt) storeHeartbeat(name string, declared *metav1.MicroTime) {
	in.t.Helper()
	c := &v1alpha1.Cluster{}
	if err := in.client.Get(in.t.Context(), client.ObjectKey{Name: name}, c); err != nil {
		in.t.Fatal(err)
	}
	_, heartbeat, err := in.heartbeats.Observe(in.t.Context(), c)
	if err != nil {
		in.t.Fatal(err)
	}
	c = withReachable(c, heartbeat, in.now)
	if c.Status.LastHeartbeat = lastHeartbeat(c, heartbeat, in.now); declared != nil {
		c.Spec.DeclaredLost = &v1alpha1.DeclaredLost{LastHeartbeat: *declared}
	}
	if err := in.client.Update(in.t.Context(), c); err != nil {
		in.t.Fatal(err)
	}
}

func (in *inventoryAt) isDeclaredLost(name string) bool {
	in.t.Helper()
	inventory, err := in.heartbeats.Inventory(in.t.Context())
	if err != nil {
		in.t.Fatal(err)
	}
	return inventory.DeclaredLost[name]
}

// inventoryAt is an inventory with heartbeats by the hub's clock.
type inventoryAt struct {
	t          *testing.T
	client     client.Client
	now        time.Time
	heartbeats *Heartbeats
}

func newInventoryAt(t *testing.T, names ...string) *inventoryAt {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	in := &inventoryAt{t: t, now: time.Unix(100_000, 0)}
	var objects []client.Object
	for _, name := range names {
		c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1alpha1.ClusterSpec{Accepted: true}}
		c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonHeartbeatReceived}}
		ns := v1alpha1.ClusterNamespacePrefix + name
		objects = append(objects, c,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Annotations: map[string]string{v1alpha1.ClusterUIDAnnotation: name}}},
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.HeartbeatLease}, Spec: coordinationv1.LeaseSpec{
				RenewTime: &metav1.MicroTime{Time: in.now}, LeaseDurationSeconds: new(int32(40)),
			}})
	}
	in.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	in.lead()
	return in
}

// lead begins to lead, as a new process.
func (in *inventoryAt) lead() {
	in.t.Helper()
	in.heartbeats = NewHeartbeats(in.client, in.client, func() time.Time { return in.now })
	if err := in.heartbeats.ObserveAll(in.t.Context()); err != nil {
		in.t.Fatal(err)
	}
}

// beat lets these clusters report, and the hub observe it.
func (in *inventoryAt) beat(names ...string) {
	in.t.Helper()
	for _, name := range names {
		lease := &coordinationv1.Lease{}
		if err := in.client.Get(in.t.Context(), client.ObjectKey{Namespace: v1alpha1.ClusterNamespacePrefix + name, Name: v1alpha1.HeartbeatLease}, lease); err != nil {
			in.t.Fatal(err)
		}
		lease.Spec.RenewTime = &metav1.MicroTime{Time: in.now}
		if err := in.client.Update(in.t.Context(), lease); err != nil {
			in.t.Fatal(err)
		}
		c := &v1alpha1.Cluster{}
		if err := in.client.Get(in.t.Context(), client.ObjectKey{Name: name}, c); err != nil {
			in.t.Fatal(err)
		}
		if _, _, err := in.heartbeats.Observe(in.t.Context(), c); err != nil {
			in.t.Fatal(err)
		}
	}
}

// pass lets time pass, while these clusters report each 30 s.
func (in *inventoryAt) pass(d time.Duration, reporting ...string) {
	in.t.Helper()
	for end := in.now.Add(d); in.now.Before(end); {
		in.now = in.now.Add(30 * time.Second)
		in.beat(reporting...)
	}
}

// expect checks which clusters are assumed lost after five minutes.
func (in *inventoryAt) expect(what, lost string) {
	in.t.Helper()
	inventory, err := in.heartbeats.Inventory(in.t.Context())
	if err != nil {
		in.t.Fatal(err)
	}
	var got []string
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		clock, silent := inventory.LossClocks[name]
		if !silent || inventory.Silence.IsTooMany() {
			continue
		}
		if untilLost, _ := clock.Remaining(in.now, 5*time.Minute); untilLost <= 0 {
			got = append(got, name)
		}
	}
	if strings.Join(got, " ") != lost {
		in.t.Errorf("%s: %v are lost, want %q (%s)", what, got, lost, inventory.Silence)
	}
}

// A cluster is lost after it was silent for long enough before the eyes of one leader, and not soon after a moment at
// which more than a third was silent.
func TestLossCountsFromObservation(t *testing.T) {
	t.Parallel()
	in := newInventoryAt(t, "a", "b", "c", "d", "e", "f")
	in.pass(5*time.Minute, "b", "c", "d", "e", "f")
	in.expect("for 40 s of the time its heartbeat was valid", "")
	in.pass(time.Minute, "b", "c", "d", "e", "f")
	in.expect("five minutes silent", "a")
	in.lead()
	in.expect("a new leader has seen nothing yet", "")
	in.pass(270*time.Second, "b", "c", "d", "e", "f")
	in.expect("nor for long enough", "")
	in.pass(30*time.Second, "b", "c", "d", "e", "f")
	in.expect("it has", "a")
	in.pass(10*time.Minute, "c", "d", "e", "f")
	in.expect("a third is silent", "a b")
	in.pass(10*time.Minute, "d", "e", "f")
	in.expect("a half is silent", "")
	in.beat("c") // the hub computes no decision while they are silent
	in.expect("c has just returned", "")
	in.pass(270*time.Second, "c", "d", "e", "f")
	in.expect("it counts again", "")
	in.pass(30*time.Second, "c", "d", "e", "f")
	in.expect("for long enough", "a b")
	in.pass(10 * time.Minute) // the hub's own API server is away
	in.beat("c", "d", "e", "f")
	in.expect("the hub's API server was away", "")
}
