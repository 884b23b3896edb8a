// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/stability"
)

// Only an answer to this very withdrawal lets Pods leave.
func TestExposure(t *testing.T) {
	t.Parallel()
	key := kinds.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: "web"}
	workload := key.RecordName()
	since := metav1.MicroTime{Time: time.Unix(1000, 0)}
	endpoints := []v1alpha1.TrafficEndpoints{{Work: workload, Addresses: []string{"10.77.1.1"}}}
	withdrawn := func(at time.Time) []v1alpha1.WithdrawnTraffic {
		return []v1alpha1.WithdrawnTraffic{{Cluster: "east", Work: workload, Time: metav1.MicroTime{Time: at}}}
	}
	for name, tc := range map[string]struct {
		reason string
		west   func(w *v1alpha1.Work)
		since  *metav1.MicroTime
		serves bool
		in     string
	}{
		"Acknowledged": {reason: "West has carried it out.", since: &since, serves: true},
		"NotBegun":     {reason: "The hub has withdrawn nothing yet.", serves: true, in: "west"},
		"Behind":       {reason: "West has not carried out the last revision.", west: func(w *v1alpha1.Work) { w.Spec.Revision = 8 }, since: &since, serves: true, in: "west"},
		"Earlier":      {reason: "It is the answer to an earlier withdrawal.", west: func(w *v1alpha1.Work) { w.Spec.Traffic.Withdrawn = withdrawn(since.Add(-time.Minute)) }, since: &since, serves: true, in: "west"},
		"NoAnswer":     {reason: "A Work without endpoints is no answer: new ones may be on their way.", west: func(w *v1alpha1.Work) { w.Spec.Traffic.Withdrawn = nil }, since: &since, serves: true, in: "west"},
		"Halted":       {reason: "A halted cluster has the endpoints of its record.", west: func(w *v1alpha1.Work) { w.Status.Halted = &v1alpha1.HaltedWork{} }, since: &since, serves: true, in: "west"},
		"New":          {reason: "A Work that was lost and made again may have left EndpointSlices.", west: func(w *v1alpha1.Work) { w.Status = v1alpha1.WorkStatus{} }, since: &since, serves: true, in: "west"},
		"OldAgent":     {reason: "An agent of an earlier version never had endpoints.", west: func(w *v1alpha1.Work) { w.Status.Traffic, w.Spec.Traffic.Withdrawn = nil, nil }, since: &since},
		"Unstretched":  {reason: "West has deleted its EndpointSlices.", west: func(w *v1alpha1.Work) { w.Spec.Traffic, w.Status.Traffic = nil, nil }, since: &since},
		"Leaves":       {reason: "The Service is to leave west, and its EndpointSlices are still there.", west: func(w *v1alpha1.Work) { w.Spec.Revision, w.Spec.Removal = 8, &v1alpha1.Removal{} }, since: &since, serves: true, in: "west"},
		"Removed": {reason: "The Service has left west, and with it its EndpointSlices.", west: func(w *v1alpha1.Work) {
			w.Spec.Removal = &v1alpha1.Removal{}
			w.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRemoved}}
		}, since: &since},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			east := &v1alpha1.Work{Spec: v1alpha1.WorkSpec{Revision: 3, Traffic: &v1alpha1.WorkTraffic{}}}
			east.Status.Traffic = &v1alpha1.WorkTrafficStatus{Revision: 3, Endpoints: endpoints}
			west := &v1alpha1.Work{Spec: v1alpha1.WorkSpec{Revision: 7, Traffic: &v1alpha1.WorkTraffic{Withdrawn: withdrawn(since.Time)}}}
			west.Status.Revision, west.Status.Traffic = 7, &v1alpha1.WorkTrafficStatus{Revision: 7}
			if tc.west != nil {
				tc.west(west)
			}
			s := &scope.Scope{Key: key, Assignment: &v1alpha1.Assignment{}, Serving: map[string]map[string]*v1alpha1.Work{"service-web": {"east": east, "west": west}}}
			if got := exposureOf(s, Decision{}, "east", tc.since); got.serves != tc.serves || got.in != tc.in {
				t.Errorf("%s: got %+v, want serves %t in %q", tc.reason, got, tc.serves, tc.in)
			}
			if got := exposureOf(s, Decision{}, "south", tc.since); got.serves {
				t.Errorf("a cluster without Pods: got %+v", got)
			}
		})
	}
}

// Only what a network administrator states, and the networks do not contradict, is merged.
func TestServiceTraffic(t *testing.T) {
	t.Parallel()
	on := func(pool string) *network.Network {
		p := netip.MustParsePrefix(pool)
		return &network.Network{VLAN: 7, V4: &network.Subnet{CIDR: netip.MustParsePrefix("10.77.0.0/16"), Start: p.Addr(), End: p.Addr().Next()}}
	}
	for name, tc := range map[string]struct {
		reason    string
		change    func(s *scope.Scope)
		west      int // addresses that west gets; -1: its agent gets nothing
		condition string
	}{
		"Merged":      {reason: "West gets the endpoints of east.", west: 1, condition: v1alpha1.ReasonAsExpected},
		"Unstretched": {reason: "Without the statement nothing is merged.", change: func(s *scope.Scope) { s.Traffic.Networks = nil }, west: -1},
		"OneOnly":     {reason: "West does not state it.", change: func(s *scope.Scope) { delete(s.Traffic.Networks, "west") }, west: -1, condition: v1alpha1.ReasonAsExpected},
		"Overlap":     {reason: "Two clusters would assign the same addresses.", change: func(s *scope.Scope) { s.Traffic.Networks["west"] = on("10.77.1.0/24") }, west: -1, condition: v1alpha1.ReasonNotStretched},
		"NoAnswer":    {reason: "An agent gets endpoints only after it has shown that it acknowledges.", change: func(s *scope.Scope) { s.Works["west"].Status.Traffic = nil }, west: 0, condition: v1alpha1.ReasonAsExpected},
		"Refused":     {reason: "West reports why it has no EndpointSlices.", change: func(s *scope.Scope) { s.Works["west"].Status.Traffic.Message = "forbidden" }, west: 1, condition: v1alpha1.ReasonTrafficRefused},
		"Truncated":   {reason: "East has more endpoints.", change: func(s *scope.Scope) { s.Works["east"].Status.Traffic.Truncated = true }, west: 1, condition: v1alpha1.ReasonEndpointsTruncated},
		"Conflict": {reason: "East has an address in the pool of west.", change: func(s *scope.Scope) { s.Works["east"].Status.Traffic.Endpoints[0].Addresses[0] = "10.77.2.1" },
			west: 0, condition: v1alpha1.ReasonAddressConflict},
		"Ports": {reason: "East reports a port of its Service.", change: func(s *scope.Scope) {
			s.Works["east"].Spec.Manifests = []v1alpha1.Manifest{{Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Service","spec":{"ports":[{"name":"http","port":80}]}}`)}}}
			s.Works["east"].Status.Traffic.Endpoints[0].Ports = []v1alpha1.TrafficPort{{Name: "http", Protocol: "TCP"}}
		}, west: 1, condition: v1alpha1.ReasonAsExpected},
		"HostilePorts": {reason: "East reports a port that no API server takes.", change: func(s *scope.Scope) {
			s.Works["east"].Status.Traffic.Endpoints[0].Ports = []v1alpha1.TrafficPort{{Name: "A_b", Protocol: "XXX"}}
		}, west: 0, condition: v1alpha1.ReasonAsExpected},
		"Withdrawn": {reason: "The Pods in east are about to leave.", change: func(s *scope.Scope) {
			s.Traffic.Withdrawn = []v1alpha1.WithdrawnTraffic{{Cluster: "east", Work: "deployment-web"}}
		}, west: 0, condition: v1alpha1.ReasonAsExpected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := func(endpoints ...v1alpha1.TrafficEndpoints) *v1alpha1.Work {
				w := &v1alpha1.Work{Spec: v1alpha1.WorkSpec{Revision: 1, Traffic: &v1alpha1.WorkTraffic{}}}
				w.Status.Traffic = &v1alpha1.WorkTrafficStatus{Revision: 1, Endpoints: endpoints}
				return w
			}
			s := &scope.Scope{
				Object: &unstructured.Unstructured{Object: map[string]any{}}, Assignment: &v1alpha1.Assignment{},
				Works: map[string]*v1alpha1.Work{"east": work(v1alpha1.TrafficEndpoints{Work: "deployment-web", Addresses: []string{"10.77.1.1"}}), "west": work()},
				Traffic: &scope.Traffic{Network: "storage", Networks: map[string]*network.Network{
					"east": on("10.77.1.0/24"), "west": on("10.77.2.0/24"),
				}},
			}
			if tc.change != nil {
				tc.change(s)
			}
			traffic, condition := serviceTraffic(s, Decision{})
			got := -1
			if w := traffic["west"]; w != nil {
				got = 0
				for _, e := range w.Endpoints {
					got += len(e.Addresses)
				}
				if withdrawn := strings.Contains(tc.reason, "about to leave"); withdrawn != (len(w.Withdrawn) > 0) {
					t.Errorf("%s: withdrawn %v", tc.reason, w.Withdrawn)
				}
			}
			if got != tc.west {
				t.Errorf("%s: west gets %d addresses, want %d", tc.reason, got, tc.west)
			}
			switch {
			case tc.condition == "" && condition != nil:
				t.Errorf("%s: condition %+v, want none", tc.reason, condition)
			case tc.condition != "" && (condition == nil || condition.Reason != tc.condition):
				t.Errorf("%s: condition %+v, want %s", tc.reason, condition, tc.condition)
			}
		})
	}
}

// What a cluster has of the Pods that stay lets the others leave, also when there is no room for all.
func TestReplacements(t *testing.T) {
	t.Parallel()
	addresses := func(format string, n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf(format, i))
		}
		return all
	}
	of := func(cluster v1alpha1.ClusterName, work string, addresses []string) v1alpha1.TrafficEndpoints {
		return v1alpha1.TrafficEndpoints{Cluster: cluster, Work: work, Addresses: addresses}
	}
	v4, v6 := addresses("10.0.0.%d", 4), addresses("fd00::%d", 3)
	for name, tc := range map[string]struct {
		reason        string
		remote, local []v1alpha1.TrafficEndpoints
		removal       *v1alpha1.Removal
		want          int32
	}{
		"Stay":         {reason: "West keeps the object, and east does not.", remote: []v1alpha1.TrafficEndpoints{of("east", "web", v4), of("west", "web", v4[:2]), of("west", "db", v4)}, want: 2},
		"Local":        {reason: "South has it, too.", remote: []v1alpha1.TrafficEndpoints{of("west", "web", v4)}, local: []v1alpha1.TrafficEndpoints{of("", "web", v4[:1])}, want: 5},
		"Dual":         {reason: "A Pod with two addresses is one.", remote: []v1alpha1.TrafficEndpoints{of("west", "web", v4), of("west", "web", v6)}, want: 4},
		"Full":         {reason: "More do not fit.", remote: []v1alpha1.TrafficEndpoints{of("east", "web", addresses("a%d", 250)), of("west", "web", addresses("b%d", 250))}, want: math.MaxInt32},
		"FullOfOthers": {reason: "South has none that stays.", remote: []v1alpha1.TrafficEndpoints{of("east", "web", addresses("a%d", 500))}},
		"Removal":      {reason: "The Service leaves south, which gets no more.", removal: &v1alpha1.Removal{}, want: math.MaxInt32},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &v1alpha1.Work{Spec: v1alpha1.WorkSpec{Removal: tc.removal, Traffic: &v1alpha1.WorkTraffic{Endpoints: tc.remote}}}
			w.Status.Traffic = &v1alpha1.WorkTrafficStatus{Endpoints: tc.local}
			if got := replacements(w, "south", "web", Decision{Replicas: map[string]int64{"west": 4, "south": 1}}); got != tc.want {
				t.Errorf("%s: got %d, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

// A move that waits for endpoints in south, which has the Service only, is computed again: at the latest when south may
// be assumed lost, and when no event says that it cannot be reached. At rest, the object waits for nothing.
func TestMoveWaitsForServingClusters(t *testing.T) {
	t.Parallel()
	s := silentScope()
	s.Key = kinds.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "DaemonSet"}, Namespace: "shop", Name: "web"}
	s.Object = &unstructured.Unstructured{Object: map[string]any{}}
	s.Clusters, s.LossClocks = map[string]*v1alpha1.Cluster{"south": s.Clusters["east"]}, map[string]policy.LossClock{"south": s.LossClocks["east"]}
	reachable := &v1alpha1.Cluster{}
	reachable.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue}}
	s.Clusters["east"], s.Clusters["west"] = reachable, reachable
	south := &v1alpha1.Work{Spec: v1alpha1.WorkSpec{Traffic: &v1alpha1.WorkTraffic{Endpoints: []v1alpha1.TrafficEndpoints{
		{Cluster: "east", Work: s.Key.RecordName(), Addresses: []string{"10.77.1.1"}},
	}}}}
	s.Serving = map[string]map[string]*v1alpha1.Work{"service-web": {"south": south}}
	s.Works = map[string]*v1alpha1.Work{"east": {}, "west": {}}
	s.Reports = map[string]scope.WorkReport{"east": {Current: true, Ready: true}, "west": {Current: true, Ready: true}}
	history := stability.History{{At: s.Now.Add(-time.Hour), Ready: true}}
	s.Observed = map[string]scope.Observed{"east": {Reports: history, Until: s.Now}, "west": {Reports: history, Until: s.Now}}
	since := &metav1.MicroTime{Time: s.Now.Add(-time.Hour)}
	a := &v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{Targets: []v1alpha1.Target{
		{Cluster: "east", State: v1alpha1.TargetDraining, LastTransitionTime: since}, {Cluster: "west", State: v1alpha1.TargetActive, LastTransitionTime: since},
	}}}
	p := &policy.EffectivePolicy{Spec: v1alpha1.PlacementSpec{Offline: v1alpha1.OfflinePolicy{AssumeLostAfter: &metav1.Duration{Duration: 15 * time.Minute}}}}
	if got := waitForLoss(s, p, a); got != 5*time.Minute {
		t.Errorf("south may be assumed lost in 5 min: got %s", got)
	}
	d := Decision{Policy: p, Replicas: map[string]int64{"west": 0}}
	if m := Migrate(s, a, d); m.RequeueAfter != trafficRecheck || !strings.Contains(m.MoveBlocked.Message, "until south has endpoints") {
		t.Errorf("the move waits for endpoints in south: got %+v", m)
	}
	for name, leaves := range map[string]bool{"west": true, "east": false} {
		if r := migrationTarget(s, a.Spec.Targets[0], Decision{Policy: p, Replicas: map[string]int64{name: 0}}, 0); r.Serves != leaves {
			t.Errorf("the object is wanted in %s: traffic to east counts: %t, want %t", name, r.Serves, leaves)
		}
	}
	a.Spec.Targets = a.Spec.Targets[1:]
	if got := waitForLoss(s, p, a); got != 0 {
		t.Errorf("at rest: got %s", got)
	}
	if m := Migrate(s, a, d); m.RequeueAfter != 0 {
		t.Errorf("at rest: got %+v", m)
	}
}
