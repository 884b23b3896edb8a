// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package networks

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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

const testTimeout = 2 * time.Minute

// start runs a controller with the rights of its ServiceAccount in deployments/.
func start(t *testing.T, env *apitest.Env, events EventRecorder) {
	t.Helper()
	ctx, cancel := context.WithCancel(logr.NewContext(context.WithoutCancel(t.Context()), testr.New(t)))
	const account = "system:serviceaccount:patchbay-system:patchbay-controller"
	cfg := env.ConfigAs(apitest.Identity{UserName: account, Groups: []string{"system:authenticated"}})
	cfg.QPS = -1
	scheme, err := kube.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	skip := true
	m, err := manager.New(cfg, manager.Options{
		Scheme: scheme, Logger: logr.FromContextOrDiscard(ctx), BaseContext: func() context.Context { return ctx },
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return kube.NewMapper(), nil },
		Cache:          cache.Options{ReaderFailOnMissingInformer: true, DefaultTransform: kube.StripUnusedFields, ByObject: CacheByObject(nil)},
		NewClient: func(cfg *rest.Config, opts client.Options) (client.Client, error) {
			opts.Cache = nil
			return client.New(cfg, opts)
		},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	if err != nil {
		t.Fatal(err)
	}
	fast := Config{Metrics: RegisterMetrics(prometheus.NewRegistry()), Events: events, StabilizationWindow: 500 * time.Millisecond, MinWriteInterval: 100 * time.Millisecond}
	if err := Add(m, fast); err != nil {
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
}

// recorded are the reasons of Events.
type recorded chan string

func (r recorded) Event(_ runtime.Object, _, reason, _ string) { r <- reason }

// fixture is one network, and nodes that only this test uses.
type fixture struct {
	*testing.T
	env   *apitest.Env
	cn    *v1.ClusterNetwork
	nodes []string
}

// report writes a node's report on the network's link: "" for up.
func (f *fixture) report(node, text string) {
	f.Helper()
	l := v1.HostLink{Name: "l", Identity: "vlan/ens4/5", State: v1.LinkUp, Networks: []string{"ClusterNetwork/" + f.cn.Name}}
	if text != "" {
		l.State, l.Error = v1.LinkError, text
	}
	f.write(node, v1.NodeNetworkStatus{NICs: []v1.NIC{{Name: "ens4"}}, Links: []v1.HostLink{l}})
}

// write writes a node's report.
func (f *fixture) write(node string, status v1.NodeNetworkStatus) {
	f.Helper()
	nn := &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := client.IgnoreAlreadyExists(f.env.Client.Create(f.Context(), nn)); err != nil {
		f.Fatal(err)
	}
	if !slices.Contains(f.nodes, node) {
		f.nodes = append(f.nodes, node)
		f.Cleanup(func() { _ = f.env.Client.Delete(context.Background(), nn) })
	}
	if err := f.env.Client.Get(f.Context(), client.ObjectKeyFromObject(nn), nn); err != nil {
		f.Fatal(err)
	}
	nn.Status = status
	if err := f.env.Client.Status().Update(f.Context(), nn); err != nil {
		f.Fatal(err)
	}
}

// expectReady waits for the condition.
func (f *fixture) expectReady(status metav1.ConditionStatus, message string) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), testTimeout)
	defer cancel()
	last := ""
	for {
		if err := f.env.Client.Get(ctx, client.ObjectKeyFromObject(f.cn), f.cn); err == nil {
			if c := meta.FindStatusCondition(f.cn.Status.Conditions, v1.ConditionReady); c != nil {
				if last = fmt.Sprint(c.Status, " ", c.Message); c.Status == status && strings.Contains(c.Message, message) {
					return
				}
			}
		}
		select {
		case <-ctx.Done():
			f.Fatalf("the condition is %q, want %s %q", last, status, message)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// expectNoCondition removes the network's NIC, and waits until the condition is gone.
func (f *fixture) expectNoCondition() {
	f.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"Options": {"host_device": null, "vlan": null}}}`))
	if err := f.env.Client.Patch(f.Context(), f.cn, patch); err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(f.Context(), testTimeout)
	defer cancel()
	for {
		if err := f.env.Client.Get(ctx, client.ObjectKeyFromObject(f.cn), f.cn); err == nil &&
			meta.FindStatusCondition(f.cn.Status.Conditions, v1.ConditionReady) == nil {
			return
		}
		select {
		case <-ctx.Done():
			f.Fatalf("a network without a link has the conditions %+v", f.cn.Status.Conditions)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// The test follows a network from the nodes' reports to what kubectl shows, with the controller's
// own rights. What others write into the same status must not change.
func TestReadyOverAllNodes(t *testing.T) {
	env := apitest.New(t)
	events := make(recorded, 1000)
	start(t, env, events)
	name := apitest.Name("net")
	f := &fixture{T: t, env: env, cn: &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.NetworkSpec{NetworkID: "n" + name[len(name)-8:], NetworkType: "macvlan",
			Options: v1.NetworkOptions{Device: "ens4", VLAN: 5, CIDR: "10.9.0.0/29"}},
	}}
	if err := env.Client.Create(t.Context(), f.cn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Client.Delete(context.Background(), f.cn) })
	f.cn.Status.Pools = []v1.PoolStatus{{Family: "IPv4", Capacity: 6, InUse: 3, Free: 3}}
	f.cn.Status.Conditions = []metav1.Condition{{
		Type: v1.ConditionAddressesAvailable, Status: metav1.ConditionTrue, Reason: v1.ReasonAddressesSufficient, LastTransitionTime: metav1.Now(),
	}}
	if err := env.Client.Status().Update(t.Context(), f.cn); err != nil {
		t.Fatal(err)
	}
	f.report("node-1", "")
	f.expectReady(metav1.ConditionTrue, "ready on all nodes")
	f.report("node-7", "ens5: NIC not found on this node")
	f.expectReady(metav1.ConditionFalse, "ready on 1 of 2 nodes; node-7: ens5: NIC not found on this node")
	f.report("node-7", "")
	f.expectReady(metav1.ConditionTrue, "ready on all nodes")
	f.expectNoCondition()
	if len(f.cn.Status.Pools) != 1 || f.cn.Status.Pools[0].InUse != 3 || meta.FindStatusCondition(f.cn.Status.Conditions, v1.ConditionAddressesAvailable) == nil {
		t.Errorf("others' part of the status was changed: %+v", f.cn.Status)
	}
	for _, want := range []string{v1.ReasonLinksNotUp, v1.ReasonLinksUp} {
		f.expectEvent(events, want)
	}
}

// A NetworkType with a typing error is the name of a CNI plugin that no node has. The network's condition
// repeats what the nodes report on the plugin and its configuration.
func TestReadyOfMissingPlugin(t *testing.T) {
	env := apitest.New(t)
	events := make(recorded, 1000)
	start(t, env, events)
	f := &fixture{T: t, env: env, cn: &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("net")},
		Spec:       v1.NetworkSpec{NetworkID: "storage", NetworkType: "ipvlam"},
	}}
	if err := env.Client.Create(t.Context(), f.cn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Client.Delete(context.Background(), f.cn) })
	report := func(node, text string) {
		f.write(node, v1.NodeNetworkStatus{Delegates: []v1.DelegateReport{{NetworkType: "ipvlam", NetworkID: "storage", Error: text}}})
	}
	const missing = "plugin is not installed: there is no /opt/cni/bin/ipvlam: did you mean NetworkType ipvlan?"
	report("node-1", missing)
	report("node-2", missing)
	f.expectReady(metav1.ConditionFalse, "ready on 0 of 2 nodes; node-1, node-2: "+missing)
	f.expectEvent(events, v1.ReasonDelegateNotInstalled)
	report("node-1", "")
	f.expectReady(metav1.ConditionFalse, "ready on 1 of 2 nodes; node-2: "+missing)
	report("node-2", "")
	f.expectReady(metav1.ConditionTrue, "ready on all nodes")
}

// expectEvent waits for an Event of a reason. A busy machine makes further ones: that no node has
// reported, and the end of that.
func (f *fixture) expectEvent(events <-chan string, want string) {
	f.Helper()
	for late := time.After(testTimeout); ; {
		select {
		case got := <-events:
			if got == want {
				return
			}
		case <-late:
			f.Errorf("no Event has the reason %s", want)
			return
		}
	}
}
