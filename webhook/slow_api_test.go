// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/apitest/admit"
)

// A controller that takes requests and never answers delays no Pod without our
// annotations, an annotated one by three seconds, and lets no network in.
func TestSlow(t *testing.T) {
	env := apitest.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	listening, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("listener on %v", l.Addr())
	}
	if err := admit.Install(t.Context(), env, listening.Port); err != nil {
		t.Fatal(err)
	}
	ns := env.Namespace(t)
	eventually(t, "networks are refused", func() bool {
		return env.Client.Create(t.Context(), tenantNetwork(t, ns, "net", `{}`), client.DryRunAll) != nil
	})
	pod := func(annotations map[string]string) time.Duration {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "p-", Annotations: annotations},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}, ServiceAccountName: "default"},
		}
		begin := time.Now()
		eventually(t, "the Pod is let in", func() bool {
			begin = time.Now()
			return env.Client.Create(t.Context(), p.DeepCopy()) == nil
		})
		return time.Since(begin)
	}
	if took := pod(nil); took > 2*time.Second {
		t.Errorf("a Pod without annotations took %v", took)
	}
	if took := pod(map[string]string{v1.InterfacesAnnotation: `[{"tenantNetwork": "net"}]`}); took < 2*time.Second || took > 8*time.Second {
		t.Errorf("an annotated Pod took %v, want about 3 s", took)
	}
	if err := env.Client.Create(t.Context(), tenantNetwork(t, ns, "net", `{}`)); err == nil {
		t.Error("a network was let in")
	}
}
