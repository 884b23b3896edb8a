// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

// autoscaledClusters are Clusters whose simulated agents leave spec.replicas of a Deployment to an autoscaler. All
// replicas are available at once.
type autoscaledClusters struct {
	*testHub

	key kinds.Key

	mu      sync.Mutex
	live    map[string]int32     // by cluster
	seen    map[string]int64     // revision of the Work, by cluster
	uids    map[string]types.UID // of the Work, by cluster
	owned   map[string]bool      // by the autoscaler, by cluster
	bounds  map[string][]string  // that the autoscaler's Work has had, by cluster
	most    map[string]int32     // that an autoscaler that the hub does not know allows, by cluster
	least   int32                // total that was ever running, once it had been 20
	reached bool
}

// autoscaledIn places a Deployment with 2 replicas in a cluster, whose autoscaler scales it to 20.
func (h *testHub) autoscaledIn(ns string, withAutoscaler bool, replicas v1alpha1.ReplicaPolicy, clusters ...string) (*autoscaledClusters, *v1alpha1.Placement) {
	h.t.Helper()
	a := &autoscaledClusters{
		testHub: h, key: deploymentKey(ns, "web"), live: map[string]int32{}, seen: map[string]int64{}, uids: map[string]types.UID{},
		owned: map[string]bool{}, bounds: map[string][]string{}, most: map[string]int32{},
	}
	for _, name := range clusters {
		a.cluster(name)
	}
	p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: v1alpha1.PlacementSpec{
		Objects:  []v1alpha1.ObjectSelector{{Group: "apps", Kind: "Deployment"}},
		Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{v1alpha1.ClusterName(clusters[0])}}, Replicas: replicas,
		Apply: v1alpha1.ApplyPolicy{Yield: []v1alpha1.FieldPath{"spec.replicas"}},
	}}
	h.create(p)
	if withAutoscaler {
		h.create(&autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
				MinReplicas:    new(int32(2)), MaxReplicas: 30,
			},
		})
	}
	d := bare(ns, "web", "", 2)
	d.Annotations = nil
	h.create(d)
	h.eventually("the Deployment to run", func(context.Context) error {
		if live, _ := a.running(); live[clusters[0]] != 2 {
			return fmt.Errorf("%w: %v", errNotYet, live)
		}
		return nil
	})
	a.scale(clusters[0], 20)
	return a, p
}

// cluster creates a Cluster with a simulated agent.
func (a *autoscaledClusters) cluster(name string) {
	a.t.Helper()
	ns := a.idleCluster(name, v1alpha1.ClusterSpec{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var beat time.Time
		for ctx.Err() == nil {
			now := time.Now()
			if err := a.act(ctx, name, ns); err == nil && now.Sub(beat) >= stableInTests {
				beat = now
				_ = renewLease(ctx, a.client, ns, now, "0s")
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	a.t.Cleanup(func() { cancel(); <-done })
}

// act carries out and reports the Works of a cluster.
func (a *autoscaledClusters) act(ctx context.Context, cluster, ns string) error {
	var list v1alpha1.WorkList
	if err := a.client.List(ctx, &list, client.InNamespace(ns)); err != nil {
		return err
	}
	for i := range list.Items {
		w := &list.Items[i]
		next := w.DeepCopy()
		next.Status = simulatedStatus(w)
		if kinds.KeyOf(w.Spec.Source) == a.key {
			a.apply(cluster, w, &next.Status)
		} else if w.Spec.Source.Kind == "HorizontalPodAutoscaler" {
			a.noteBounds(cluster, w)
		}
		if equalAsJSON(w.Status, next.Status) {
			continue
		}
		if err := a.client.Status().Update(ctx, next); err != nil {
			return err
		}
	}
	return nil
}

// apply does what an agent does with the Deployment's Work, and completes its status.
func (a *autoscaledClusters) apply(cluster string, w *v1alpha1.Work, status *v1alpha1.WorkStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	requested, _ := scope.RequestedReplicas(w)
	if w.Spec.Removal != nil {
		delete(a.live, cluster)
		return
	}
	if a.uids[cluster] != w.UID {
		a.uids[cluster], a.owned[cluster], a.live[cluster] = w.UID, false, requested
	}
	a.owned[cluster] = a.owned[cluster] || w.Spec.MinReplicas != nil
	live := a.live[cluster]
	switch isNew := a.seen[cluster] != w.Spec.Revision; {
	case !a.owned[cluster], (live == 0) != (requested == 0):
		live = requested
	case isNew && w.Spec.MinReplicas != nil:
		live = max(live, *w.Spec.MinReplicas)
	}
	if most, ok := a.most[cluster]; ok {
		live = min(live, most)
	}
	a.seen[cluster], a.live[cluster] = w.Spec.Revision, live
	m := &status.Manifests[0]
	m.Replicas = &live
	if a.owned[cluster] {
		m.AutoscaledReplicas = new(live)
	}
	m.Status = &runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"observedGeneration":%d,"replicas":%d,"updatedReplicas":%[2]d,"readyReplicas":%[2]d,"availableReplicas":%[2]d}`, w.Spec.Revision, live)}
	a.noteTotal()
}

// noteTotal notes how many replicas run at least, once they were 20.
func (a *autoscaledClusters) noteTotal() {
	total := int32(0)
	for _, n := range a.live {
		total += n
	}
	if a.reached = a.reached || total >= 20; a.reached && (a.least == 0 || total < a.least) {
		a.least = total
	}
}

// noteBounds notes the bounds of an autoscaler's Work.
func (a *autoscaledClusters) noteBounds(cluster string, w *v1alpha1.Work) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, err := scope.ManifestOf(w)
	if err != nil {
		return
	}
	least, _, _ := unstructured.NestedInt64(o.Object, "spec", "minReplicas")
	most, _, _ := unstructured.NestedInt64(o.Object, "spec", "maxReplicas")
	text, all := fmt.Sprintf("%d-%d", least, most), a.bounds[cluster]
	if len(all) == 0 || all[len(all)-1] != text {
		a.bounds[cluster] = append(all, text)
	}
}

// scale has the autoscaler of a cluster request this many replicas, and waits until the hub knows.
func (a *autoscaledClusters) scale(cluster string, n int32) {
	a.t.Helper()
	a.mu.Lock()
	a.live[cluster], a.owned[cluster] = n, true
	a.mu.Unlock()
	a.work(a.key, cluster, fmt.Sprintf("reports %d", n), func(w *v1alpha1.Work) bool {
		return len(w.Status.Manifests) > 0 && w.Status.Manifests[0].AutoscaledReplicas != nil && *w.Status.Manifests[0].AutoscaledReplicas == n
	})
}

// running returns what runs, and the least that ever ran.
func (a *autoscaledClusters) running() (live map[string]int32, least int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.live), a.least
}

// place lets the policy select these clusters.
func (a *autoscaledClusters) place(p *v1alpha1.Placement, clusters ...string) {
	a.t.Helper()
	a.patch(p, fmt.Sprintf(`{"spec":{"clusters":{"names":["%s"]}}}`, strings.Join(clusters, `","`)))
}

// expectRuns waits until this many replicas run in each cluster, and the Works request what the Deployment says.
func (a *autoscaledClusters) expectRuns(live, works map[string]int32) {
	a.t.Helper()
	a.expectWorks(a.key, works)
	a.eventually(fmt.Sprintf("%v to run", live), func(context.Context) error {
		if got, _ := a.running(); !maps.Equal(got, live) {
			return fmt.Errorf("%w: %v", errNotYet, got)
		}
		return nil
	})
	a.eventually("the move to end", func(ctx context.Context) error {
		assignment := &v1alpha1.Assignment{}
		if err := a.client.Get(ctx, a.key.Assignment(), assignment); err != nil {
			return err
		}
		for _, t := range assignment.Spec.Targets {
			if t.AutoscaledReplicas != nil {
				return fmt.Errorf("%w: %+v", errNotYet, t)
			}
		}
		if n := assignment.Spec.Decision.AutoscaledReplicas; n != 0 {
			return fmt.Errorf("%w: %d", errNotYet, n)
		}
		return nil
	})
	if _, least := a.running(); least < 20 {
		a.t.Errorf("only %d replicas ran, want 20 at all times", least)
	}
}

// A move counts what the autoscaler runs, and not the 2 replicas of the Deployment. The autoscaler holds still in both
// clusters until the move has ended.
func TestAutoscaledMove(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("scaled")
	a, p := h.autoscaledIn(ns, true, v1alpha1.ReplicaPolicy{}, "scaled-east", "scaled-west")
	h.quiet(ns, "scaled-", 2*time.Second)
	a.place(p, "scaled-west")
	a.expectRuns(map[string]int32{"scaled-west": 20}, map[string]int32{"scaled-west": 2})
	autoscaler := kinds.Key{GroupKind: schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}, Namespace: ns, Name: "web"}
	h.expectWorks(autoscaler, map[string]int32{"scaled-west": 0})
	h.quiet(ns, "scaled-", 2*time.Second)
	a.mu.Lock()
	east, west := fmt.Sprint(a.bounds["scaled-east"]), fmt.Sprint(a.bounds["scaled-west"])
	a.mu.Unlock()
	if west != "[20-30 2-30]" {
		t.Errorf("bounds in the receiving cluster: got %s, want at least 20 replicas until the end", west)
	}
	if !strings.HasPrefix(east, "[2-30 ") || !strings.Contains(east, " 15-15") {
		t.Errorf("bounds in the leaving cluster: got %s, want exactly what is requested", east)
	}
}

// An autoscaler that the hub does not know loses its replicas at once, when all others run. What it adds meanwhile is
// wanted, too. Two clusters keep what they have at rest, and after the move.
func TestUnknownAutoscaler(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("unknown")
	a, p := h.autoscaledIn(ns, false, v1alpha1.ReplicaPolicy{}, "unknown-east", "unknown-west", "unknown-south")
	a.place(p, "unknown-east", "unknown-west")
	a.expectRuns(map[string]int32{"unknown-east": 20, "unknown-west": 1}, map[string]int32{"unknown-east": 1, "unknown-west": 1})
	a.scale("unknown-west", 6)
	h.quiet(ns, "unknown-", 2*time.Second)

	a.mu.Lock()
	a.most["unknown-south"] = 3 // another autoscaler takes the replicas back there
	a.mu.Unlock()
	a.place(p, "unknown-south")
	h.eventually("the move to wait", func(context.Context) error {
		if live, _ := a.running(); live["unknown-south"] != 3 || live["unknown-east"] != 20 || live["unknown-west"] != 6 {
			return fmt.Errorf("%w: %v", errNotYet, live)
		}
		return nil
	})
	h.expectCondition(a.key, v1alpha1.ConditionMoveBlocked, v1alpha1.ReasonStalled, "keeps 3 in unknown-south, and 26 are requested there")
	a.mu.Lock()
	delete(a.most, "unknown-south")
	a.mu.Unlock()
	a.scale("unknown-east", 24)
	a.expectRuns(map[string]int32{"unknown-south": 30}, map[string]int32{"unknown-south": 2})
}

// Where each cluster has the whole object, a new one gets as many replicas as the largest one.
func TestAutoscaledDuplicate(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("double")
	a, p := h.autoscaledIn(ns, true, v1alpha1.ReplicaPolicy{Mode: v1alpha1.ReplicasDuplicate}, "double-east", "double-west")
	a.place(p, "double-west")
	a.expectRuns(map[string]int32{"double-west": 20}, map[string]int32{"double-west": 2})
	h.quiet(ns, "double-", 2*time.Second)
}

// A user's 0 replicas at the hub are an order, whatever an autoscaler requests.
func TestScaledToZero(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("zero")
	a, _ := h.autoscaledIn(ns, true, v1alpha1.ReplicaPolicy{}, "zero-east")
	h.patch(bare(ns, "web", "", 2), `{"spec":{"replicas":0}}`)
	h.eventually("nothing to run", func(context.Context) error {
		if live, _ := a.running(); live["zero-east"] != 0 {
			return fmt.Errorf("%w: %v", errNotYet, live)
		}
		return nil
	})
}
