// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/source"
	"github.com/patchbay-cni/patchbay/webhook"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	apitest.Main(m)
}

// shared is the API server with admission that most tests use.
var shared struct {
	sync.Once
	env *apitest.Env
	err error
}

// start returns the shared API server with admission served in this process.
func start(t *testing.T) *apitest.Env {
	t.Helper()
	shared.Do(func() {
		shared.env = apitest.Start(t)
		_, shared.err = serve(context.Background(), shared.env) // it outlives this test
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.env
}

// serve runs admission until the returned function is called, and waits until the API
// server asks it.
func serve(ctx context.Context, env *apitest.Env) (stop func(), err error) {
	return serveAt(ctx, env, time.Now)
}

// serveAt is serve with a clock for the certificates.
func serveAt(ctx context.Context, env *apitest.Env, clock func() time.Time) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	port, err := freePort()
	if err != nil {
		cancel()
		return nil, err
	}
	// With its own rights only; see deployments/webhooks/rbac.yaml.
	m, err := manager.New(env.ConfigAs(controller()), manager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
	})
	if err == nil {
		_, err = webhook.Register(ctx, m, webhook.Options{
			Namespace: "patchbay-system", Host: "127.0.0.1", Port: port, MoreHosts: []string{"127.0.0.1"}, Clock: clock,
		})
	}
	if err == nil {
		err = install(ctx, env, port)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.Start(ctx)
	}()
	return func() { cancel(); <-done }, awaitAdmission(ctx, env)
}

// controller is the account of patchbay-controller.
func controller() apitest.Identity {
	return apitest.Identity{
		UserName: "system:serviceaccount:patchbay-system:patchbay-controller",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:patchbay-system", "system:authenticated"},
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return portOf(l)
}

// portOf returns the TCP port that somebody listens on.
func portOf(l net.Listener) (int, error) {
	a, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("listener on %v: want a TCP address", l.Addr())
	}
	return a.Port, nil
}

// install creates the webhook configurations of deployments/, with a URL in place of
// the Service.
func install(ctx context.Context, env *apitest.Env, port int) error {
	folder, err := source.Path("deployments", "webhooks")
	if err != nil {
		return err
	}
	objects, err := apitest.ReadManifests(folder)
	if err != nil {
		return err
	}
	local := func(c *admissionv1.WebhookClientConfig) {
		url := fmt.Sprintf("https://127.0.0.1:%d", port)
		c.URL, c.Service = &url, nil
	}
	for _, u := range objects {
		var obj client.Object
		switch u.GetKind() {
		case "MutatingWebhookConfiguration":
			c := &admissionv1.MutatingWebhookConfiguration{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, c); err != nil {
				return err
			}
			for i := range c.Webhooks {
				local(&c.Webhooks[i].ClientConfig)
			}
			obj = c
		case "ValidatingWebhookConfiguration":
			c := &admissionv1.ValidatingWebhookConfiguration{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, c); err != nil {
				return err
			}
			for i := range c.Webhooks {
				local(&c.Webhooks[i].ClientConfig)
			}
			obj = c
		default:
			continue
		}
		if err := env.Client.Create(ctx, obj); err != nil {
			return err
		}
	}
	return nil
}

// awaitAdmission waits until each webhook was asked and answered.
func awaitAdmission(ctx context.Context, env *apitest.Env) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	probes := []func() client.Object{ // new each time, since a create that passes fills it in
		func() client.Object {
			return &v1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"}, Spec: v1.NetworkSpec{NetworkID: "x", Options: v1.NetworkOptions{VLAN: 5}}}
		},
		func() client.Object {
			return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe", Annotations: map[string]string{"danm.io/network": "x"}}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		},
	}
	var last error
	for _, probe := range probes {
		for {
			err := env.Client.Create(ctx, probe(), client.DryRunAll)
			if apierrors.IsInvalid(err) && strings.Contains(err.Error(), "admission webhook") {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("await admission: last %w", last)
			}
			last = err
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

// kubectl runs kubectl with a manifest as somebody, and returns all that it prints.
func kubectl(t *testing.T, env *apitest.Env, manifest string, args ...string) (string, error) {
	t.Helper()
	bin, err := source.Path("bin", "kubernetes", "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), bin, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+env.Plane.AdminKubeconfig(), "HOME="+home)
	cmd.Stdin = strings.NewReader(manifest)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return strings.ReplaceAll(out.String(), filepath.Clean(home), "~"), err
}

// object reads one object from YAML.
func object(tb testing.TB, kind, namespace, name, text string) *unstructured.Unstructured {
	tb.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		tb.Fatalf("object of the test: %v\n%s", err, text)
	}
	u.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(kind))
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}
