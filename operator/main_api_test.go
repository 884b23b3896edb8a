// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package operator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/manager"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/source"
)

// The tests share one API server, and there is one Installation: they run one after the other.
func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	apitest.Main(m)
}

// account is the operator's ServiceAccount.
func account() apitest.Identity {
	const namespace = "patchbay-operator"
	return apitest.Identity{
		UserName: "system:serviceaccount:" + namespace + ":patchbay-operator",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
}

// cluster is an API server with the operator's manifests and without an Installation.
type cluster struct {
	*apitest.Env

	// admin knows Installations, too.
	admin client.Client
}

// newCluster installs what a user applies before an Installation, and removes what an earlier test has left.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	env := apitest.Start(t)
	folder, err := source.Path("deployments", "operator")
	if err != nil {
		t.Fatal(err)
	}
	env.Kubectl(t, "apply", "--server-side", "--force-conflicts", "--validate=strict", "--kustomize", folder)
	scheme := env.Client.Scheme()
	for _, add := range []func() error{func() error { return v1alpha1.AddToScheme(scheme) }, func() error { return policyv1.AddToScheme(scheme) }} {
		if err := add(); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := client.New(env.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{Env: env, admin: admin}
	eventually(t, "the kind Installation", func(ctx context.Context) error { return admin.List(ctx, &v1alpha1.InstallationList{}) })
	c.reset(t)
	return c
}

// reset removes the Installation and the workloads.
func (c *cluster) reset(t *testing.T) {
	t.Helper()
	in := client.InNamespace(render.Namespace)
	for _, o := range []client.Object{&appsv1.DaemonSet{}, &appsv1.Deployment{}, &policyv1.PodDisruptionBudget{}} {
		if err := c.admin.DeleteAllOf(t.Context(), o, in, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.admin.DeleteAllOf(t.Context(), &corev1.Pod{}, in, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Installation to be gone", func(ctx context.Context) error {
		i := &v1alpha1.Installation{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.InstallationName}}
		if err := c.admin.Delete(ctx, i); !apierrors.IsNotFound(err) {
			// No operator runs that could uninstall it.
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			return fmt.Errorf("it is still there: %w", errors.Join(err, c.admin.Patch(ctx, i, patch)))
		}
		return nil
	})
}

// deleteAfter deletes an object when the test ends, also if it fails.
func (c *cluster) deleteAfter(t *testing.T, o client.Object) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.admin.Delete(ctx, o)); err != nil {
			t.Error(err)
		}
	})
}

// write creates the Installation, or replaces its spec.
func (c *cluster) write(t *testing.T, spec string) *v1alpha1.Installation {
	t.Helper()
	i := &v1alpha1.Installation{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.InstallationName}}
	want := v1alpha1.InstallationSpec{}
	if err := yaml.UnmarshalStrict([]byte(spec), &want); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the write of the Installation", func(ctx context.Context) error {
		err := c.admin.Get(ctx, client.ObjectKeyFromObject(i), i)
		i.Spec = want
		if apierrors.IsNotFound(err) {
			return c.admin.Create(ctx, i)
		}
		if err != nil {
			return err
		}
		return c.admin.Update(ctx, i)
	})
	return i
}

// await waits until a condition of the Installation's present generation has a reason, and returns it.
func (c *cluster) await(t *testing.T, condition, reason string) metav1.Condition {
	t.Helper()
	var found metav1.Condition
	eventually(t, condition+" with reason "+reason, func(ctx context.Context) error {
		i := &v1alpha1.Installation{}
		if err := c.admin.Get(ctx, client.ObjectKey{Name: v1alpha1.InstallationName}, i); err != nil {
			return err
		}
		got := meta.FindStatusCondition(i.Status.Conditions, condition)
		if got == nil || got.Reason != reason || got.ObservedGeneration != i.Generation {
			return fmt.Errorf("generation %d has %+v", i.Generation, i.Status.Conditions)
		}
		found = *got
		return nil
	})
	return found
}

// startOperator runs the operator with the rights of its ServiceAccount until the test ends.
func startOperator(t *testing.T, c *cluster) {
	t.Helper()
	startReplica(t, c, false)
}

// startReplica runs an operator, which waits for its Lease if it takes part in the election.
func startReplica(t *testing.T, c *cluster, elect bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(logr.NewContext(context.WithoutCancel(t.Context()), testLogger(t)))
	m, err := newManager(ctx, c.ConfigAs(account()), &options{
		namespace: "patchbay-operator", healthAddress: "127.0.0.1:0", leaderElect: elect,
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- manager.Run(ctx, m) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the operator ended with %v", err)
		}
	})
}

// testLogger logs until the test ends, because testing.T panics afterwards.
func testLogger(t *testing.T) logr.Logger {
	t.Helper()
	var mu sync.Mutex
	ended := false
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
	})
	return funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			t.Log(prefix, args)
		}
	}, funcr.Options{})
}

// eventually polls until try succeeds, for five minutes at most.
func eventually(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for began := time.Now(); ; {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited five minutes for %s: %v", what, err)
		case <-time.After(apitest.Pause(began)):
		}
	}
}
