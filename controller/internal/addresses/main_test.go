// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package addresses

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

// testTimeout is how long a test waits for an expected state.
const testTimeout = 2 * time.Minute

// grace is how long a Node must be gone in these tests.
const grace = time.Second

// fixture is a cluster with a running controller.
type fixture struct {
	*testing.T
	env     *apitest.Env
	metrics *prometheus.Registry
}

// start runs a controller with the rights of its ServiceAccount in deployments/.
func start(t *testing.T, env *apitest.Env) *fixture {
	t.Helper()
	return startWith(t, env, func(*Config) {})
}

// startWith is start with another configuration.
func startWith(t *testing.T, env *apitest.Env, change func(*Config)) *fixture {
	t.Helper()
	return startOn(t, env, func(m manager.Manager) manager.Manager { return m }, change)
}

// startOn is startWith on another manager.
func startOn(t *testing.T, env *apitest.Env, wrap func(manager.Manager) manager.Manager, change func(*Config)) *fixture {
	t.Helper()
	ctx, cancel := context.WithCancel(logr.NewContext(context.WithoutCancel(t.Context()), testLogger(t)))
	f := &fixture{T: t, env: env, metrics: prometheus.NewRegistry()}
	m := wrap(f.manager(ctx))
	cfg := Config{NodeGracePeriod: grace, Metrics: RegisterMetrics(f.metrics), SweepInterval: 200 * time.Millisecond, MinInterval: 100 * time.Millisecond, RecoveryInterval: 100 * time.Millisecond}
	change(&cfg)
	if err := Add(ctx, m, cfg); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f
}

// testLogger returns a logger that drops what a manager logs after its end.
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

// manager returns a manager with the options of the program.
func (f *fixture) manager(ctx context.Context) manager.Manager {
	f.Helper()
	const account = "system:serviceaccount:patchbay-system:patchbay-controller"
	cfg := f.env.ConfigAs(apitest.Identity{UserName: account, Groups: []string{"system:authenticated"}})
	cfg.QPS = -1
	scheme, err := kube.NewScheme()
	if err != nil {
		f.Fatal(err)
	}
	skip := true
	m, err := manager.New(cfg, manager.Options{
		Scheme: scheme, Logger: logr.FromContextOrDiscard(ctx), BaseContext: func() context.Context { return ctx },
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return kube.NewMapper(), nil },
		Cache:          cache.Options{ReaderFailOnMissingInformer: true, DefaultTransform: kube.StripUnusedFields, ByObject: CacheByObject()},
		NewClient: func(cfg *rest.Config, opts client.Options) (client.Client, error) {
			opts.Cache = nil
			return client.New(cfg, opts)
		},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	if err != nil {
		f.Fatal(err)
	}
	return m
}

// eventually polls until try succeeds.
func (f *fixture) eventually(what string, try func(context.Context) error) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), testTimeout)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			f.Fatalf("waited %s for %s: %v", testTimeout, what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// network creates a network 10.9.0.0/29, with 6 dynamic addresses and a status.
func (f *fixture) network(status *v1.IPAMStatus) *v1.ClusterNetwork {
	f.Helper()
	name := apitest.Name("net")
	cn := &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.NetworkSpec{NetworkID: "n" + name[len(name)-8:], NetworkType: "macvlan",
			Options: v1.NetworkOptions{Device: "ens4", CIDR: "10.9.0.0/29"}},
	}
	if err := f.env.Client.Create(f.Context(), cn); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = f.env.Client.Delete(context.Background(), cn) })
	f.write(cn, func(s *v1.NetworkStatus) { s.IPAM = status })
	return cn
}

// write changes the status of a network as a node does.
func (f *fixture) write(cn *v1.ClusterNetwork, change func(*v1.NetworkStatus)) {
	f.Helper()
	f.eventually("a write of status", func(ctx context.Context) error {
		fresh := f.get(ctx, cn)
		change(&fresh.Status)
		return f.env.Client.Status().Update(ctx, fresh)
	})
}

// get reads a network.
func (f *fixture) get(ctx context.Context, cn *v1.ClusterNetwork) *v1.ClusterNetwork {
	fresh := &v1.ClusterNetwork{}
	if err := f.env.Client.Get(ctx, client.ObjectKeyFromObject(cn), fresh); err != nil {
		f.Error(err)
	}
	return fresh
}

// bits waits until the network's bitmap has exactly these bits.
func (f *fixture) bits(cn *v1.ClusterNetwork, want ...int) {
	f.Helper()
	f.eventually(fmt.Sprintf("bits %v", want), func(ctx context.Context) error {
		got, page := f.get(ctx, cn).Status.IPAM.V4.Pages["0"], page(want...)
		if got != page && (len(want) > 0 || got != "") {
			return fmt.Errorf("page is %q, want %q", got, page)
		}
		return nil
	})
}

// condition waits for a condition with a text in its message, or for its absence
// when status is empty.
func (f *fixture) condition(cn *v1.ClusterNetwork, kind string, status metav1.ConditionStatus, reason, text string) {
	f.Helper()
	f.eventually(kind+" "+string(status)+" "+reason, func(ctx context.Context) error {
		c := meta.FindStatusCondition(f.get(ctx, cn).Status.Conditions, kind)
		switch {
		case c == nil && status == "":
			return nil
		case c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, text):
			return fmt.Errorf("condition is %+v", c)
		}
		return nil
	})
}

// event waits for an Event on a network.
func (f *fixture) event(cn *v1.ClusterNetwork, reason, text string) {
	f.Helper()
	f.eventually("the Event "+reason, func(ctx context.Context) error {
		list := &corev1.EventList{}
		if err := f.env.Client.List(ctx, list, client.MatchingFields{"involvedObject.uid": string(cn.UID)}); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("%d Events, none with %q", len(list.Items), text)
	})
}

// annotate sets an annotation of a network.
func (f *fixture) annotate(cn *v1.ClusterNetwork, name, value string) {
	f.Helper()
	patch := client.MergeFrom(&v1.ClusterNetwork{})
	with := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{name: value}}}
	data, err := patch.Data(with)
	if err != nil {
		f.Fatal(err)
	}
	if err := f.env.Client.Patch(f.Context(), cn.DeepCopy(), client.RawPatch(patch.Type(), data)); err != nil {
		f.Fatal(err)
	}
}

// annotationRemoved waits until an annotation is gone.
func (f *fixture) annotationRemoved(cn *v1.ClusterNetwork, name string) {
	f.Helper()
	f.eventually(name+" to go", func(ctx context.Context) error {
		if v, ok := f.get(ctx, cn).Annotations[name]; ok {
			return fmt.Errorf("it is %q", v)
		}
		return nil
	})
}

// node creates a Node.
func (f *fixture) node(name string) *corev1.Node {
	f.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := f.env.Client.Create(f.Context(), n); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = f.env.Client.Delete(context.Background(), n) })
	return n
}

// endpoint creates a DanmEp of a network on a node.
func (f *fixture) endpoint(namespace string, cn *v1.ClusterNetwork, node *corev1.Node, address string) *v1.DanmEp {
	f.Helper()
	name := apitest.Name("ep")
	ep := &v1.DanmEp{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{v1.NodeFinalizer}},
		Spec: v1.DanmEpSpec{
			NetworkName: cn.Name, NetworkUID: string(cn.UID), APIType: v1.KindClusterNetwork, EndpointID: name, CID: "c",
			Pod: "pod", PodUID: "pod-uid", Host: node.Name, HostUID: string(node.UID),
			Interface: v1.DanmEpInterface{Name: "eth0", Address: address},
		},
	}
	if err := f.env.Client.Create(f.Context(), ep); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		ep.Finalizers, ep.ResourceVersion = nil, ""
		_ = f.env.Client.Update(context.Background(), ep)
		_ = f.env.Client.Delete(context.Background(), ep)
	})
	return ep
}
