// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/webhook"
)

// While the certificate is renewed nothing is refused that is right, nothing is let
// in that is wrong, and nothing restarts.
func TestRotationUnderLoad(t *testing.T) {
	env := apitest.New(t)
	var offset atomic.Int64
	const past = 61 * 24 * time.Hour // two thirds of a certificate's life are over
	offset.Store(int64(-past))
	stop, err := serveAt(t.Context(), env, func() time.Time { return time.Now().Add(time.Duration(offset.Load())) })
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

// certificate is what the replicas share.
func certificate(t *testing.T, env *apitest.Env) string {
	t.Helper()
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: "patchbay-system", Name: webhook.SecretName}
	if err := env.Client.Get(t.Context(), key, &secret); err != nil {
		t.Fatal(err)
	}
	return string(secret.Data["tls.crt"])
}
