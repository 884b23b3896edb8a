// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/controller/admissiontest"
	"github.com/patchbay-cni/patchbay/controller/internal/webhook"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// While the certificate is renewed, no valid object is rejected, no invalid one is admitted, and
// nothing restarts.
func TestRotationUnderLoad(t *testing.T) {
	env := apitest.New(t)
	var offset atomic.Int64
	const past = 61 * 24 * time.Hour // two thirds of a certificate's lifetime are over
	offset.Store(int64(-past))
	stop, err := admissiontest.Serve(t.Context(), env, func() time.Time { return time.Now().Add(time.Duration(offset.Load())) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ns := env.Namespace(t)
	offer(t, env, ns, `{hostDevices: [{name: "%", vniType: vlan, vniRange: "100-110"}]}`)
	before := certificate(t, env)
	var asked atomic.Int64
	var over atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ; !over.Load(); asked.Add(1) {
			good := env.Client.Create(t.Context(), tenantNetwork(t, ns, "good", `{}`), client.DryRunAll)
			bad := env.Client.Create(t.Context(), tenantNetwork(t, ns, "bad", `{Options: {vlan: 5}}`), client.DryRunAll)
			if good != nil || !apierrors.IsInvalid(bad) || !strings.Contains(bad.Error(), "spec.Options.vlan") {
				t.Errorf("after %d requests: good %v, bad %v", asked.Load(), good, bad)
				break
			}
		}
	}()
	end := sync.OnceFunc(func() { over.Store(true); <-done })
	defer end()
	offset.Store(0)
	eventually(t, "the certificate is renewed", func() bool { return certificate(t, env) != before })
	mark := asked.Load()
	eventually(t, "requests with the new one", func() bool { return asked.Load() > mark+10 || t.Failed() })
	end()
}

// While the certificate has expired, a tenant gets nothing, and Pods without our annotations do not
// wait. After the renewal everything works, without a restart.
func TestExpiredUnderLoad(t *testing.T) {
	env := apitest.New(t)
	ns := env.Namespace(t)
	offer(t, env, ns, `{hostDevices: [{name: "%", vniType: vlan, vniRange: "100-110"}]}`)
	var offset atomic.Int64
	offset.Store(int64(-100 * 24 * time.Hour)) // it expired ten days ago
	port, err := admissiontest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	stop, err := admissiontest.Run(t.Context(), env, port, func() time.Time { return time.Now().Add(time.Duration(offset.Load())) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := admissiontest.Install(t.Context(), env, port); err != nil {
		t.Fatal(err)
	}
	network := func() error {
		return env.Client.Create(t.Context(), tenantNetwork(t, ns, "net", `{}`), client.DryRunAll)
	}
	eventually(t, "networks are rejected for the certificate", func() bool {
		err := network()
		return err != nil && strings.Contains(err.Error(), "expired")
	})
	var over atomic.Bool
	done := make(chan []time.Duration, 1)
	go func() { done <- plainPods(t, env, ns, &over) }()
	end := sync.OnceValue(func() []time.Duration { over.Store(true); return <-done })
	defer end()
	for range 20 {
		wrong := env.Client.Create(t.Context(), tenantNetwork(t, ns, "net", `{Options: {vlan: 5}}`))
		if wrong == nil || network() == nil {
			t.Fatal("a network was admitted without an answer of the webhook")
		}
	}
	offset.Store(0)
	eventually(t, "the certificate is renewed", func() bool { return network() == nil })
	took := end()
	slices.Sort(took)
	if n := asked(t, env, "pods.danm.io"); len(took) == 0 || n != 0 {
		t.Fatalf("%d Pods without annotations: the API server has asked %d times", len(took), n)
	}
	t.Logf("%d Pods without annotations: p50 %v, most %v", len(took), took[len(took)/2], took[len(took)-1])
}

// plainPods creates Pods without our annotations until over is set, and returns how long each
// creation took.
func plainPods(t *testing.T, env *apitest.Env, ns string, over *atomic.Bool) []time.Duration {
	t.Helper()
	var took []time.Duration
	for !over.Load() {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "plain-"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}},
		}
		begin := time.Now()
		if err := env.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Errorf("create a Pod without annotations: %v", err)
			return took
		}
		took = append(took, time.Since(begin))
	}
	return took
}

// certificate returns the certificate that the replicas share.
func certificate(t *testing.T, env *apitest.Env) string {
	t.Helper()
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: "patchbay-system", Name: webhook.SecretName}
	if err := env.Client.Get(t.Context(), key, &secret); err != nil {
		t.Fatal(err)
	}
	return string(secret.Data["tls.crt"])
}
