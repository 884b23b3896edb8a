// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/metrics"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	apitest.Main(m)
}

// testHub is a running hub, with simulated agents.
type testHub struct {
	t       *testing.T
	client  client.WithWatch
	timeout time.Duration     // of eventually
	agents  map[string]func() // stop the simulated agent of a cluster
}

var hubOnce sync.Once

// hubMetrics are the metrics of that hub.
var hubMetrics = prometheus.NewRegistry()

// stableInTests is how long reports must last in tests, so that a move takes seconds.
const stableInTests = 100 * time.Millisecond

// newTestHub returns the hub that all tests of this binary share, and starts it once.
func newTestHub(t *testing.T) *testHub {
	t.Helper()
	env := apitest.Start(t)
	h := newTestHubOn(t, env, 3*time.Minute)
	hubOnce.Do(func() { startHub(t, env) })
	return h
}

func newTestHubOn(t *testing.T, env *apitest.Env, timeout time.Duration) *testHub {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.NewWithWatch(env.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &testHub{t: t, client: c, timeout: timeout, agents: map[string]func(){}}
}

// logger returns the logger of a hub: it writes in verbose tests only.
func logger() logr.Logger {
	if !testing.Verbose() {
		return logr.Discard()
	}
	return funcr.New(func(_, args string) { fmt.Fprintln(os.Stderr, args) }, funcr.Options{})
}

func startHub(t *testing.T, env *apitest.Env) {
	t.Helper()
	if err := bed.Install(t.Context(), env.Config, "placement", "CustomResourceDefinition"); err != nil {
		t.Fatal(err)
	}
	ctx := logr.NewContext(context.Background(), logger())
	opts, err := Options(ctx)
	if err != nil {
		t.Fatal(err)
	}
	opts.Logger = logr.FromContextOrDiscard(ctx)
	config := rest.CopyConfig(env.Config)
	config.Wrap(hubRequests.wrap)
	m, err := manager.New(config, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := Add(ctx, m, Config{Metrics: metrics.Register(hubMetrics), stableDefault: stableInTests}); err != nil {
		t.Fatal(err)
	}
	go func() { // until the binary ends
		if err := m.Start(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "the hub of all tests ended:", err)
		}
	}()
}

// idleCluster creates a reachable Cluster whose agent does nothing, and returns its namespace.
func (h *testHub) idleCluster(name string, spec v1alpha1.ClusterSpec) (ns string) {
	h.t.Helper()
	spec.Accepted = true
	h.create(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	ns = v1alpha1.ClusterNamespacePrefix + name
	h.eventually("namespace "+ns, func(ctx context.Context) error {
		return h.client.Get(ctx, client.ObjectKey{Name: ns}, &corev1.Namespace{})
	})
	h.create(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.HeartbeatLease},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Now()}, LeaseDurationSeconds: new(int32(3600))},
	})
	h.expectReachable(name)
	return ns
}

// cluster creates a Cluster whose agent is simulated: it applies all Works at once, and all Pods are
// available.
func (h *testHub) cluster(name string, spec v1alpha1.ClusterSpec) {
	h.t.Helper()
	h.idleCluster(name, spec)
	h.startAgent(name)
}

// startAgent starts the simulated agent of a Cluster.
func (h *testHub) startAgent(name string) {
	h.t.Helper()
	ns := v1alpha1.ClusterNamespacePrefix + name
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var beat time.Time
		for ctx.Err() == nil {
			now := time.Now()
			if err := simulateAgent(ctx, h.client, ns); err == nil && now.Sub(beat) >= stableInTests {
				beat = now
				_ = renewLease(ctx, h.client, ns, now, "0s")
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	h.agents[name] = func() { cancel(); <-done }
	h.t.Cleanup(h.agents[name])
}

// expectReachable waits until a cluster is reachable: before that the hub places nothing there.
func (h *testHub) expectReachable(name string) {
	h.t.Helper()
	h.eventually(name+" to be reachable", func(ctx context.Context) error {
		c := &v1alpha1.Cluster{}
		if err := h.client.Get(ctx, client.ObjectKey{Name: name}, c); err != nil {
			return err
		}
		if !clusters.IsReachable(c) {
			return errNotYet
		}
		return nil
	})
}

// renewLease renews the Lease of a simulated agent, with the age of the oldest change that it has not reported then.
func renewLease(ctx context.Context, c client.Client, ns string, at time.Time, delay string) error {
	renewed := at.UTC().Format(metav1.RFC3339Micro)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"holderIdentity":"simulated","renewTime":%q}}`,
		v1alpha1.ReportDelayAnnotation, delay+"@"+renewed, renewed)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.HeartbeatLease}}
	return c.Patch(ctx, lease, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// simulateAgent reports all Works of a cluster as carried out.
func simulateAgent(ctx context.Context, c client.Client, ns string) error {
	var list v1alpha1.WorkList
	if err := c.List(ctx, &list, client.InNamespace(ns)); err != nil {
		return err
	}
	for i := range list.Items {
		w := &list.Items[i]
		next := w.DeepCopy()
		next.Status = simulatedStatus(w)
		if equalAsJSON(w.Status, next.Status) {
			continue
		}
		if err := c.Status().Update(ctx, next); err != nil {
			return err
		}
	}
	return nil
}

// equalAsJSON compares two values as they are stored.
func equalAsJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// refuseKey is the annotation of an object that the cluster refuses; its value is the message.
const refuseKey = "refuse"

// finishKey is the annotation of a Job that has finished in its cluster.
const finishKey = "finished"

// finishedJob is the status of such a Job, as a cluster has it.
const finishedJob = `{"startTime":"2026-01-01T00:00:00Z","completionTime":"2026-01-01T00:01:00Z","succeeded":1,"conditions":[` +
	`{"type":"SuccessCriteriaMet","status":"True","reason":"CompletionsReached","lastProbeTime":"2026-01-01T00:01:00Z","lastTransitionTime":"2026-01-01T00:01:00Z"},` +
	`{"type":"Complete","status":"True","reason":"CompletionsReached","lastProbeTime":"2026-01-01T00:01:00Z","lastTransitionTime":"2026-01-01T00:01:00Z"}]}`

// holdKey is the annotation of an object that the cluster does not remove.
const holdKey = "hold"

// simulatedStatus returns what a simulated agent reports of a Work.
func simulatedStatus(w *v1alpha1.Work) v1alpha1.WorkStatus {
	s := v1alpha1.WorkStatus{Revision: w.Spec.Revision}
	s.Conditions = append(s.Conditions, w.Status.Conditions...)
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(w.Spec.Manifests[0].Object.Raw); err != nil {
		return s
	}
	if w.Spec.Removal != nil {
		if _, blocked := o.GetAnnotations()[holdKey]; blocked {
			return w.Status
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: "Applied", Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRemoved})
		return s
	}
	if text := o.GetAnnotations()[refuseKey]; text != "" {
		c := metav1.Condition{Type: "Applied", Status: metav1.ConditionFalse, Reason: "Invalid", Message: text}
		meta.SetStatusCondition(&s.Conditions, c)
		s.Manifests = []v1alpha1.ManifestStatus{{
			Group: w.Spec.Source.Group, Kind: w.Spec.Source.Kind, Namespace: w.Spec.Source.Namespace, Name: w.Spec.Source.Name,
			Conditions: []metav1.Condition{*meta.FindStatusCondition(s.Conditions, c.Type)},
		}}
		return s
	}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: "Applied", Status: metav1.ConditionTrue, Reason: "Applied"})
	m := v1alpha1.ManifestStatus{
		Group: w.Spec.Source.Group, Kind: w.Spec.Source.Kind, Namespace: w.Spec.Source.Namespace, Name: w.Spec.Source.Name,
		UID: "there-" + w.UID, Generation: w.Spec.Revision, AppliedGeneration: w.Spec.Revision,
		SourceGeneration: w.Spec.SourceGeneration, Ready: true,
	}
	if n, ok := render.Replicas(o); ok && o.GetKind() != "Pod" {
		status := map[string]any{"observedGeneration": w.Spec.Revision, "replicas": n, "updatedReplicas": n}
		status["readyReplicas"], status["availableReplicas"] = n, n
		for k, v := range status {
			if v == int32(0) {
				delete(status, k)
			}
		}
		m.Status = &runtime.RawExtension{Raw: []byte(encode(status))}
		if _, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); found { // also of a Job, an agent reports no parallelism
			m.Replicas = &n
		}
	}
	if _, finished := o.GetAnnotations()[finishKey]; finished {
		m.Status = &runtime.RawExtension{Raw: []byte(finishedJob)}
	}
	if w.Spec.Volume != nil {
		s.Term, m.Volume = w.Spec.Term, simulatedVolume(w.Spec.Volume)
	}
	s.Manifests = []v1alpha1.ManifestStatus{m}
	return s
}

// encode returns a status of numbers as JSON.
func encode(status map[string]any) string {
	raw, err := json.Marshal(status)
	if err != nil {
		return "{}"
	}
	return string(raw)
}

func (h *testHub) create(o client.Object) {
	h.t.Helper()
	if err := h.client.Create(h.t.Context(), o); err != nil {
		h.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// eventually polls until try succeeds.
func (h *testHub) eventually(what string, try func(context.Context) error) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), h.timeout)
	defer cancel()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil || last == nil {
			last = err // the error of a canceled request does not name the cause
		}
		select {
		case <-ctx.Done():
			h.t.Fatalf("wait for %s: %v", what, last)
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// annotate sets the clusters of an object.
func (h *testHub) annotate(o client.Object, clusters string) {
	h.t.Helper()
	h.setAnnotation(o, v1alpha1.ClustersAnnotation, clusters)
}

// setAnnotation sets an annotation of an object.
func (h *testHub) setAnnotation(o client.Object, key, text string) {
	h.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, text)
	if err := h.client.Patch(h.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		h.t.Fatal(err)
	}
}

// works returns the replicas that each Work of an object requests, by cluster.
func (h *testHub) works(ctx context.Context, k kinds.Key) (map[string]int32, error) {
	var list v1alpha1.WorkList
	if err := h.client.List(ctx, &list); err != nil {
		return nil, err
	}
	found := map[string]int32{}
	for i := range list.Items {
		if w := &list.Items[i]; kinds.KeyOf(w.Spec.Source) == k {
			name, _ := kinds.ClusterOfNamespace(w.Namespace)
			found[name], _ = scope.RequestedReplicas(w)
		}
	}
	return found, nil
}

var errNotYet = errors.New("not yet")
