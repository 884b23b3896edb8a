// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package addresses

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// bitmap returns a bitmap of 10.9.0.0/29.
func bitmap(bits ...int) *v1.AddressBitmap {
	return &v1.AddressBitmap{CIDR: "10.9.0.0/29", Pages: map[string]string{"0": page(bits...)}}
}

func TestBitsThatNobodyCoversAreFreed(t *testing.T) {
	env := apitest.New(t) // alone, since other tests' controllers would free it, too
	f := start(t, env)
	node := f.node(apitest.Name("node"))
	cn := f.network(nil)
	f.endpoint(env.Namespace(t), cn, node, "10.9.0.2/29")
	f.write(cn, func(s *v1.NetworkStatus) {
		s.IPAM = &v1.IPAMStatus{
			V4:   bitmap(2, 3, 4),
			Held: map[string]v1.HeldAddresses{node.Name: {UID: string(node.UID), Seq: 1, V4: "10.9.0.3"}},
		}
	})
	f.bits(cn, 2, 3) // 2 is in a DanmEp, 3 is held, 4 has no owner
	f.eventually("the drift to be counted", func(context.Context) error {
		want := "# HELP patchbay_ipam_drift_total Wrong bits of networks' bitmaps that were corrected, by kind: freed bits had no owner, marked bits were clear though the address was in use. Investigate values above zero.\n" +
			"# TYPE patchbay_ipam_drift_total counter\npatchbay_ipam_drift_total{kind=\"freed\"} 1\npatchbay_ipam_drift_total{kind=\"marked\"} 0\n"
		return testutil.GatherAndCompare(f.metrics, strings.NewReader(want), "patchbay_ipam_drift_total")
	})
}

// Tests that share an API server run one after the other, because the controller of each reconciles
// all networks, and one that is about to stop would obey another test's request.

func TestNodesThatAreGoneLoseTheirAddresses(t *testing.T) {
	env := apitest.Start(t)
	f := start(t, env)
	ns, gone, alive := env.Namespace(t), f.node(apitest.Name("gone")), f.node(apitest.Name("alive"))
	cn := f.network(nil)
	dead, live := f.endpoint(ns, cn, gone, "10.9.0.1/29"), f.endpoint(ns, cn, alive, "10.9.0.2/29")
	f.write(cn, func(s *v1.NetworkStatus) {
		s.IPAM = &v1.IPAMStatus{V4: bitmap(1, 2, 3, 4, 5), Held: map[string]v1.HeldAddresses{
			gone.Name:     {UID: string(gone.UID), Seq: 1, V4: "10.9.0.3"},
			alive.Name:    {UID: string(alive.UID), Seq: 1, V4: "10.9.0.4"},
			"!quarantine": {UID: "none", V4: "10.9.0.5"},
		}}
	})
	if err := env.Client.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	f.bits(cn, 2, 4, 5)
	f.eventually("its entry and DanmEp to go", func(ctx context.Context) error {
		held := f.get(ctx, cn).Status.IPAM.Held
		if _, ok := held[gone.Name]; ok || len(held) != 2 {
			return fmt.Errorf("entries are %v", held)
		}
		if err := env.Client.Get(ctx, client.ObjectKeyFromObject(dead), &v1.DanmEp{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("its DanmEp is still there: %w", err)
		}
		return env.Client.Get(ctx, client.ObjectKeyFromObject(live), &v1.DanmEp{})
	})
}

// A Node that registers again has another UID. Its machine may not have been off, so what its
// daemon wrote since stays, and so do the DanmEps of Pods that still exist.
func TestNodesThatCameBackKeepWhatIsNew(t *testing.T) {
	env := apitest.Start(t)
	f := start(t, env)
	ns, old := env.Namespace(t), f.node(apitest.Name("node"))
	fresh, stale := f.network(nil), f.network(nil)
	if err := env.Client.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	again := f.node(old.Name)
	runs, over := f.endpoint(ns, fresh, old, "10.9.0.1/29"), f.endpoint(ns, stale, old, "10.9.0.1/29")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pod-that-runs"},
		Spec:       corev1.PodSpec{NodeName: old.Name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if err := env.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	runs.Spec.Pod, runs.Spec.PodUID = pod.Name, string(pod.UID)
	if err := env.Client.Update(t.Context(), runs); err != nil {
		t.Fatal(err)
	}
	heldBy := func(uid string) func(*v1.NetworkStatus) {
		return func(s *v1.NetworkStatus) {
			s.IPAM = &v1.IPAMStatus{V4: bitmap(1, 3), Held: map[string]v1.HeldAddresses{old.Name: {UID: uid, Seq: 2, V4: "10.9.0.3"}}}
		}
	}
	f.write(fresh, heldBy(string(again.UID)))
	f.write(stale, heldBy(string(old.UID)))
	f.bits(stale) // the entry of the earlier incarnation, and its DanmEp
	f.bits(fresh, 1, 3)
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(runs), &v1.DanmEp{}); err != nil {
		t.Errorf("the DanmEp of a Pod that is there: %v", err)
	}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(over), &v1.DanmEp{}); !apierrors.IsNotFound(err) {
		t.Errorf("the DanmEp of a Pod that is gone: %v, want it gone", err)
	}
}

func TestRebuildOnRequest(t *testing.T) {
	env := apitest.New(t) // alone, since other tests' controllers would correct it, too
	f := startWith(t, env, func(cfg *Config) {
		cfg.SweepInterval, cfg.MinInterval, cfg.ChangeDelay = time.Hour, time.Hour, time.Hour
	})
	node := f.node(apitest.Name("node"))
	cn := f.network(nil)
	f.endpoint(env.Namespace(t), cn, node, "10.9.0.2/29")
	f.write(cn, func(s *v1.NetworkStatus) {
		s.IPAM = &v1.IPAMStatus{
			V4: bitmap(4), Held: map[string]v1.HeldAddresses{node.Name: {UID: string(node.UID), Seq: 1, V4: "10.9.0.3-10.9.0.4"}},
		}
	})
	f.annotate(cn, v1.RebuildAnnotation, "now")
	f.annotationRemoved(cn, v1.RebuildAnnotation)
	f.bits(cn, 2, 3, 4)
	f.event(cn, v1.ReasonBitmapRebuilt, "2 addresses in use were marked")
}

func TestPoolsThatRunOut(t *testing.T) {
	env := apitest.Start(t)
	f := start(t, env)
	node := f.node(apitest.Name("node"))
	held := func(ranges string, bits ...int) func(*v1.NetworkStatus) {
		return func(s *v1.NetworkStatus) {
			s.IPAM = &v1.IPAMStatus{V4: bitmap(bits...), Held: map[string]v1.HeldAddresses{node.Name: {UID: string(node.UID), Seq: 1, V4: ranges}}}
		}
	}
	cn := f.network(nil)
	f.condition(cn, v1.ConditionAddressesAvailable, metav1.ConditionTrue, v1.ReasonAddressesSufficient, "0 of 6 IPv4")
	f.write(cn, held("10.9.0.1-10.9.0.6", 1, 2, 3, 4, 5, 6))
	f.condition(cn, v1.ConditionAddressesAvailable, metav1.ConditionFalse, v1.ReasonAddressesExhausted, "6 of 6 IPv4")
	f.event(cn, v1.ReasonAddressesExhausted, "Delete Pods, or widen spec.Options.")
	f.write(cn, held("10.9.0.1-10.9.0.3", 1, 2, 3))
	f.condition(cn, v1.ConditionAddressesAvailable, metav1.ConditionTrue, v1.ReasonAddressesSufficient, "3 of 6 IPv4")
	if got := f.get(t.Context(), cn).Status.IPAM.Held[node.Name].V4; got != "10.9.0.1-10.9.0.3" {
		t.Errorf("writing conditions changed what the node holds: %s", got)
	}
}

// Outside of a recovery the skip annotation is removed, so that it does not apply to the next one.
func TestSkipWithoutRecoveryIsForgotten(t *testing.T) {
	env := apitest.Start(t)
	f := start(t, env)
	cn := f.network(&v1.IPAMStatus{V4: bitmap()})
	f.annotate(cn, v1.SkipAnnotation, "node-1")
	f.annotationRemoved(cn, v1.SkipAnnotation)
}

func TestRecoveryWaitsForEveryNode(t *testing.T) {
	env := apitest.New(t) // alone, since all Nodes are awaited
	f := start(t, env)
	f.node("a")
	f.node("b")
	f.node("c")
	cn := f.network(&v1.IPAMStatus{V4: bitmap(), Recovering: &v1.RecoveryStatus{StartTime: metav1.NowMicro(), ReportedNodes: []string{"a"}}})
	f.condition(cn, v1.ConditionRecovering, metav1.ConditionTrue, v1.ReasonAwaitingNodes, "b, c")
	// A node that does not use the network watches only its metadata.
	marked := func() {
		f.eventually("the mark that nodes report to", func(ctx context.Context) error {
			fresh := f.get(ctx, cn)
			if got, want := fresh.Annotations[v1.RecoveringAnnotation], fresh.Status.IPAM.Recovering.StartTime.UTC().Format(time.RFC3339Nano); got != want {
				return fmt.Errorf("it is %q, want %q", got, want)
			}
			return nil
		})
	}
	marked()
	f.annotate(cn, v1.RecoveringAnnotation, "another value") // everyone who may write the network can do so
	marked()
	f.write(cn, func(s *v1.NetworkStatus) { // it starts again before it ended
		s.IPAM.Recovering = &v1.RecoveryStatus{StartTime: metav1.NewMicroTime(s.IPAM.Recovering.StartTime.Add(time.Millisecond)), ReportedNodes: []string{"a"}}
	})
	marked()
	f.write(cn, func(s *v1.NetworkStatus) { s.IPAM.Recovering.ReportedNodes = []string{"a", "b"} })
	f.condition(cn, v1.ConditionRecovering, metav1.ConditionTrue, v1.ReasonAwaitingNodes, "use: c.")
	if f.get(t.Context(), cn).Status.IPAM.Recovering == nil {
		t.Fatal("the recovery ended before all nodes had reported")
	}
	f.annotate(cn, v1.SkipAnnotation, "c")
	f.condition(cn, v1.ConditionRecovering, "", "", "")
	f.annotationRemoved(cn, v1.SkipAnnotation)
	f.event(cn, "Recovered", "left out on request: c")
	f.eventually("the state to go", func(ctx context.Context) error {
		if f.get(ctx, cn).Status.IPAM.Recovering != nil {
			return errors.New("still recovering")
		}
		return nil
	})
	f.annotationRemoved(cn, v1.RecoveringAnnotation)
}

// Each claim changes a network's metadata; the object with the bitmap is read at a bounded rate.
func TestClaimsDoNotStreamToTheController(t *testing.T) {
	env := apitest.New(t) // alone, for its requests to be counted
	var reads atomic.Int64
	env.Config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, &reads} })
	f := startWith(t, env, func(cfg *Config) { cfg.SweepInterval, cfg.MinInterval = time.Hour, time.Second })
	node := f.node("node")
	cn := f.network(&v1.IPAMStatus{V4: bitmap()})
	f.condition(cn, v1.ConditionAddressesAvailable, metav1.ConditionTrue, v1.ReasonAddressesSufficient, "")
	before, begin := reads.Load(), time.Now()
	for i := range 50 {
		f.write(cn, func(s *v1.NetworkStatus) {
			s.IPAM = &v1.IPAMStatus{V4: bitmap(1), Held: map[string]v1.HeldAddresses{node.Name: {UID: string(node.UID), Seq: int64(i), V4: "10.9.0.1"}}}
		})
	}
	if got, most := reads.Load()-before, int64(time.Since(begin)/time.Second)+2; got > most {
		t.Errorf("50 claims in %s made %d reads of the network, want at most %d", time.Since(begin), got, most)
	}
}

// counting counts the controller's reads of networks from the API server's watch cache.
type counting struct {
	next  http.RoundTripper
	reads *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	if strings.Contains(r.URL.Path, "/clusternetworks/") && q.Get("resourceVersion") == "0" {
		c.reads.Add(1)
	}
	return c.next.RoundTrip(r)
}
