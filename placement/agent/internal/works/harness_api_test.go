// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package works_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/works"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// waitTimeout is how long something may take on a busy machine, and while some requests hang.
const waitTimeout = 3 * time.Minute

const clusterNamespace = v1alpha1.ClusterNamespacePrefix + "east"

// testAgent is an agent whose hub and cluster are the same API server.
type testAgent struct {
	client.Client
	env  *apitest.Env
	stop func()
}

// start prepares the API server and runs the agent.
func start(t *testing.T) *testAgent {
	t.Helper()
	b := prepare(t)
	b.run(t)
	return b
}

// servers have what an agent needs.
var servers = apitest.Pool{Prepare: func(ctx context.Context, env *apitest.Env) error {
	if err := bed.Install(ctx, env.Config, "placement/crds", "CustomResourceDefinition"); err != nil {
		return err
	}
	c, err := client.New(env.Config, client.Options{Scheme: bed.Scheme()})
	if err != nil {
		return err
	}
	return errors.Join(bed.InstallAgent(ctx, env.Config), bed.AggregateAgentRole(ctx, c))
}}

// prepare returns an API server for an agent. Records are cluster-scoped, so each test has its own.
func prepare(t *testing.T) *testAgent {
	t.Helper()
	env := servers.New(t)
	c, err := client.New(env.Config, client.Options{Scheme: bed.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	b := &testAgent{Client: c, env: env}
	b.allow(t, metav1.NamespaceDefault, v1alpha1.AccessAdopt)
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: clusterNamespace}},
		&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east"}},
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// allow labels a namespace of the cluster, as its admin would. It creates a missing namespace.
func (b *testAgent) allow(t *testing.T, namespace, access string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := b.Create(t.Context(), ns); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, v1alpha1.AccessLabel, access))
	if err := b.Patch(t.Context(), ns, patch); err != nil {
		t.Fatal(err)
	}
}

// local returns the cluster's client configuration for the agent, with the rights that deployments/ gives it.
func (b *testAgent) local() *rest.Config {
	config := rest.CopyConfig(b.env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: bed.AgentUser, Groups: append(bed.Groups(), "system:authenticated")}
	return config
}

// run starts an agent; b.stop stops it.
func (b *testAgent) run(t *testing.T) {
	t.Helper()
	b.runAt(t, b.env.Config)
}

// runAt starts an agent with a client configuration for the hub.
func (b *testAgent) runAt(t *testing.T, hub *rest.Config) {
	t.Helper()
	b.runBetween(t, hub, b.local())
}

// runBetween starts an agent with client configurations for hub and cluster.
func (b *testAgent) runBetween(t *testing.T, hub, local *rest.Config) {
	t.Helper()
	a, err := works.New(works.Config{
		Cluster: "east", Hub: hub, Local: local, Identity: "test", Account: "patchbay-agent", Version: "test",
		Guard: works.Guard{Namespace: v1alpha1.SystemNamespace, PodSecurity: v1alpha1.PodSecurityBaseline},
	})
	if err != nil {
		t.Fatal(err)
	}
	log := logr.Discard()
	if testing.Verbose() {
		log = funcr.New(func(_, args string) { fmt.Fprintln(os.Stderr, time.Now().Format("05.00"), args) }, funcr.Options{Verbosity: 1})
	}
	ctx, cancel := context.WithCancel(logr.NewContext(context.Background(), log))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	var once sync.Once
	b.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(b.stop)
}

// manifest returns the manifest of an object in YAML.
func manifest(t *testing.T, resource, text string) v1alpha1.Manifest {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v1alpha1.Manifest{Resource: resource, Object: runtime.RawExtension{Raw: raw}}
}

// work creates a Work at the hub.
func (b *testAgent) work(t *testing.T, name string, change func(*v1alpha1.WorkSpec), manifests ...v1alpha1.Manifest) *v1alpha1.Work {
	t.Helper()
	w := &v1alpha1.Work{
		ObjectMeta: metav1.ObjectMeta{Namespace: clusterNamespace, Name: name},
		Spec: v1alpha1.WorkSpec{
			HubUID: "hub-1", Revision: 1, SourceGeneration: 1, Manifests: manifests,
			Source: v1alpha1.ObjectReference{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: "default", Name: name, UID: "source-1"},
		},
	}
	if change != nil {
		change(&w.Spec)
	}
	if err := b.Create(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	return w
}

// change patches the spec of a Work, without a conflict with the agent's writes, and increases the revision.
func (b *testAgent) change(t *testing.T, w *v1alpha1.Work, change func(*v1alpha1.WorkSpec)) {
	t.Helper()
	fresh := &v1alpha1.Work{}
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(w), fresh); err != nil {
		t.Fatal(err)
	}
	before := fresh.DeepCopy()
	fresh.Spec.Revision++
	change(&fresh.Spec)
	if err := b.Patch(t.Context(), fresh, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	*w = *fresh
}

// awaitWork waits until ok returns true for the Work's status.
func (b *testAgent) awaitWork(t *testing.T, w *v1alpha1.Work, what string, ok func(v1alpha1.WorkStatus) bool) v1alpha1.WorkStatus {
	t.Helper()
	fresh := &v1alpha1.Work{}
	eventually(t, what, func() error {
		if err := b.Get(t.Context(), client.ObjectKeyFromObject(w), fresh); err != nil {
			return err
		}
		if !ok(fresh.Status) {
			raw, _ := json.Marshal(fresh.Status)
			return fmt.Errorf("status %s", raw)
		}
		return nil
	})
	return fresh.Status
}

// applied returns a check that a revision is applied.
func applied(revision int64) func(v1alpha1.WorkStatus) bool {
	return func(s v1alpha1.WorkStatus) bool {
		return s.Revision == revision && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionApplied)
	}
}

// failed returns a check that Applied is False with a reason and a part of the message.
func failed(reason, part string) func(v1alpha1.WorkStatus) bool {
	return func(s v1alpha1.WorkStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionApplied)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason && strings.Contains(c.Message, part)
	}
}

// object returns an object; nil when there is none.
func (b *testAgent) object(t *testing.T, apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	err := b.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// field returns a field as text.
func field(o *unstructured.Unstructured, path ...string) string {
	if o == nil {
		return "no object"
	}
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	return fmt.Sprint(v)
}

// eventually retries until try succeeds, and fails the test after waitTimeout.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	for began := time.Now(); ; <-time.After(apitest.Pause(began)) {
		err := try()
		if err == nil {
			return
		}
		if time.Since(began) > waitTimeout {
			t.Fatalf("not within %s: %s: %v", waitTimeout, what, err)
		}
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
