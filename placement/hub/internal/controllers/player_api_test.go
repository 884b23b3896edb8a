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
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	apitest.Main(m)
}

// bench is a hub that runs, and clusters that are played.
type bench struct {
	t        *testing.T
	client   client.WithWatch
	patience time.Duration // with what is to come
}

var hubOnce sync.Once

// newBench starts the hub for all tests of this binary.
func newBench(t *testing.T) *bench {
	t.Helper()
	env := apitest.Start(t)
	b := newBenchOn(t, env, 3*time.Minute)
	hubOnce.Do(func() { startHub(t, env) })
	return b
}

func newBenchOn(t *testing.T, env *apitest.Env, patience time.Duration) *bench {
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
	return &bench{t: t, client: c, patience: patience}
}

// logger writes what a hub logs when tests are to be verbose.
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
	m, err := manager.New(env.Config, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := Add(ctx, m, Config{}); err != nil {
		t.Fatal(err)
	}
	go func() { // until the binary ends
		if err := m.Start(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "the hub of all tests has ended:", err)
		}
	}()
}

// joined makes a reachable Cluster, whose agent does nothing, and returns its namespace.
func (b *bench) joined(name string, spec v1alpha1.ClusterSpec) (ns string) {
	b.t.Helper()
	spec.Accepted = true
	b.create(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	ns = v1alpha1.ClusterNamespacePrefix + name
	b.eventually("namespace "+ns, func(ctx context.Context) error {
		return b.client.Get(ctx, client.ObjectKey{Name: ns}, &corev1.Namespace{})
	})
	b.create(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.HeartbeatLease},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Now()}, LeaseDurationSeconds: new(int32(3600))},
	})
	b.reached(name)
	return ns
}

// cluster makes a Cluster whose agent is played: it applies all at once, and all
// Pods are available.
func (b *bench) cluster(name string, spec v1alpha1.ClusterSpec) {
	b.t.Helper()
	ns := b.joined(name, spec)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = play(ctx, b.client, ns)
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	b.t.Cleanup(func() { cancel(); <-done })
}

// reached waits until the hub takes a cluster for reachable: before that it places nothing there.
func (b *bench) reached(name string) {
	b.t.Helper()
	b.eventually(name+" to be reachable", func(ctx context.Context) error {
		c := &v1alpha1.Cluster{}
		if err := b.client.Get(ctx, client.ObjectKey{Name: name}, c); err != nil {
			return err
		}
		if !reachable(c) {
			return errNotYet
		}
		return nil
	})
}

// play carries out all Works of a cluster.
func play(ctx context.Context, c client.Client, ns string) error {
	var list v1alpha1.WorkList
	if err := c.List(ctx, &list, client.InNamespace(ns)); err != nil {
		return err
	}
	for i := range list.Items {
		w := &list.Items[i]
		next := w.DeepCopy()
		next.Status = played(w)
		if same(w.Status, next.Status) {
			continue
		}
		if err := c.Status().Update(ctx, next); err != nil {
			return err
		}
	}
	return nil
}

// refuseKey is the annotation of what a cluster refuses for good: the reason.
const refuseKey = "refuse"

// holdKey is the annotation of what a cluster does not come to remove.
const holdKey = "hold"

// played is what the agent says.
func played(w *v1alpha1.Work) v1alpha1.WorkStatus {
	s := v1alpha1.WorkStatus{Revision: w.Spec.Revision}
	s.Conditions = append(s.Conditions, w.Status.Conditions...)
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(w.Spec.Manifests[0].Object.Raw); err != nil {
		return s
	}
	if w.Spec.Removal != nil {
		if _, held := o.GetAnnotations()[holdKey]; held {
			return w.Status
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: "Applied", Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRemoved})
		return s
	}
	if text := o.GetAnnotations()[refuseKey]; text != "" {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: "Applied", Status: metav1.ConditionFalse, Reason: "Invalid", Message: text})
		return s
	}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: "Applied", Status: metav1.ConditionTrue, Reason: "Applied"})
	m := v1alpha1.ManifestStatus{
		Group: w.Spec.Source.Group, Kind: w.Spec.Source.Kind, Namespace: w.Spec.Source.Namespace, Name: w.Spec.Source.Name,
		UID: "there-" + w.UID, Generation: w.Spec.Revision, AppliedGeneration: w.Spec.Revision,
		SourceGeneration: w.Spec.SourceGeneration, Ready: true,
	}
	if n, ok := replicasOf(o); ok && o.GetKind() != "Pod" {
		status := map[string]any{"observedGeneration": w.Spec.Revision, "replicas": n, "updatedReplicas": n}
		status["readyReplicas"], status["availableReplicas"] = n, n
		for k, v := range status {
			if v == int32(0) {
				delete(status, k)
			}
		}
		m.Status = &runtime.RawExtension{Raw: []byte(must(status))}
	}
	s.Manifests = []v1alpha1.ManifestStatus{m}
	return s
}

// must is a status as JSON; one of numbers has no other.
func must(status map[string]any) string {
	raw, err := json.Marshal(status)
	if err != nil {
		return "{}"
	}
	return string(raw)
}

func (b *bench) create(o client.Object) {
	b.t.Helper()
	if err := b.client.Create(b.t.Context(), o); err != nil {
		b.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// eventually polls until try succeeds.
func (b *bench) eventually(what string, try func(context.Context) error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), b.patience)
	defer cancel()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil || last == nil {
			last = err // a request that was canceled says nothing of the cause
		}
		select {
		case <-ctx.Done():
			b.t.Fatalf("wait for %s: %v", what, last)
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// annotate says where an object is to run.
func (b *bench) annotate(o client.Object, clusters string) {
	b.t.Helper()
	b.mark(o, v1alpha1.ClustersAnnotation, clusters)
}

// mark annotates an object.
func (b *bench) mark(o client.Object, key, text string) {
	b.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, text)
	if err := b.client.Patch(b.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		b.t.Fatal(err)
	}
}

// works are the replicas that each cluster is asked for of an object.
func (b *bench) works(ctx context.Context, k Key) (map[string]int32, error) {
	var list v1alpha1.WorkList
	if err := b.client.List(ctx, &list); err != nil {
		return nil, err
	}
	found := map[string]int32{}
	for i := range list.Items {
		if w := &list.Items[i]; keyOf(w.Spec.Source) == k {
			name, _ := clusterOf(w.Namespace)
			found[name], _ = replicasIn(w)
		}
	}
	return found, nil
}

var errNotYet = errors.New("not yet")
