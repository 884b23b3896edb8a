// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/admissiontest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A controller that accepts requests and never answers delays no Pod without our annotations,
// delays an annotated one by three seconds, and admits no network.
func TestSlow(t *testing.T) {
	env := apitest.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, and the test never reads
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	listening, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("listener on %v", l.Addr())
	}
	if err := admissiontest.Install(t.Context(), env, listening.Port); err != nil {
		t.Fatal(err)
	}
	ns := env.Namespace(t)
	eventually(t, "networks are rejected", func() bool {
		return env.Client.Create(t.Context(), tenantNetwork(t, ns, "net", `{}`), client.DryRunAll) != nil
	})
	pod := func(annotations map[string]string) time.Duration {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "p-", Annotations: annotations},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}, ServiceAccountName: "default"},
		}
		begin := time.Now()
		eventually(t, "the Pod is admitted", func() bool {
			begin = time.Now()
			return env.Client.Create(t.Context(), p.DeepCopy()) == nil
		})
		return time.Since(begin)
	}
	took := pod(nil)
	if n := asked(t, env, "pods.danm.io"); n != 0 {
		t.Errorf("a Pod without annotations took %v: the API server has asked %d times", took, n)
	}
	// A busy machine makes it longer, never shorter.
	least := time.Hour
	for tries := 0; tries < 5 && least > 8*time.Second; tries++ {
		least = min(least, pod(map[string]string{v1.InterfacesAnnotation: `[{"tenantNetwork": "net"}]`}))
	}
	if least < 2*time.Second || least > 8*time.Second {
		t.Errorf("an annotated Pod took %v, want about 3 s", least)
	}
	if asked(t, env, "pods.danm.io") == 0 {
		t.Error("the API server counts no question about an annotated Pod")
	}
	if err := env.Client.Create(t.Context(), tenantNetwork(t, ns, "net", `{}`)); err == nil {
		t.Error("a network was admitted")
	}
}

// asked returns how often the API server has called a webhook, by its own metric.
func asked(t *testing.T, env *apitest.Env, webhook string) int {
	t.Helper()
	cs, err := kubernetes.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	text, err := cs.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		if !strings.HasPrefix(line, "apiserver_admission_webhook_admission_duration_seconds_count{") || !strings.Contains(line, fmt.Sprintf("name=%q", webhook)) {
			continue
		}
		_, number, _ := strings.Cut(line, "} ")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return total
}
