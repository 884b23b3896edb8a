// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	danm "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// stretchedObjects are two Deployments behind the page's Service on a stretched network. One moves by its annotation,
// the other by a drain.
const stretchedObjects = `
apiVersion: placement.patchbay.io/v1alpha1
kind: Placement
metadata: {name: drained}
spec: {objects: [{group: apps, kind: Deployment, names: [drained]}], clusters: {names: [east, west], count: 1}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: moved, annotations: {placement.patchbay.io/clusters: east}}
spec:
  replicas: 4
  selector: {matchLabels: {app: moved}}
  template:
    metadata: {labels: {app: moved, tier: web}, annotations: {test.patchbay.io/ready-after: 20s, test.patchbay.io/ends-after: 1s}}
    spec: {containers: [{name: c, image: "registry.example/app:1"}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: drained}
spec:
  replicas: 2
  selector: {matchLabels: {app: drained}}
  template:
    metadata: {labels: {app: drained, tier: web}, annotations: {test.patchbay.io/ready-after: 20s, test.patchbay.io/ends-after: 1s}}
    spec: {containers: [{name: c, image: "registry.example/app:1"}]}
`

// refuseSlices keeps the agent from changing its EndpointSlices in a namespace, as a webhook that is down would.
const refuseSlices = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NS}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
    resourceRules: [{apiGroups: [discovery.k8s.io], apiVersions: ["*"], operations: [UPDATE, DELETE], resources: [endpointslices]}]
  validations:
  - expression: "!oldObject.metadata.name.contains('-remote-')"
    message: the test refuses it
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NS}
spec: {policyName: NS, validationActions: [Deny]}
`

// Traffic through a move: 200 requests a second from clients in three clusters, each of which knows only the
// EndpointSlices of its own cluster, through a move by the annotation and one by a drain, to Pods that need 20 s to be
// ready: 0 fail. South cannot withdraw the endpoints of east for a while: nothing leaves east meanwhile, and
// MoveBlocked names south.
func TestTrafficThroughAMove(t *testing.T) {
	w := shared
	ns := w.namespace(t)
	checkInvariants(t, w, ns)
	texts := func(text string) string { return strings.ReplaceAll(text, "NS", ns) }
	user := &terminal{t: t, dir: t.TempDir()}
	user.runAll(w.Hub.ControlPlane.AdminKubeconfig(), user.fromPage("placement.patchbay.io/stretched",
		"name: storage", texts("name: NS\n  labels: {test: NS}"), "clusterNetwork: storage", "clusterNetwork: "+ns, "{name: pools,", "{name: "+ns+",",
		"[ClusterNetwork.danm.io]", texts("[ClusterNetwork.danm.io], selector: {matchLabels: {test: NS}}"), `"east,west"`, `"east,west,south"`,
		"name: web", "name: web\n  namespace: "+ns, `{"app": "web"}`, `{"tier": "web"}`, `: {"start": "10.77.2.0", "end": "10.77.2.255"}`,
		`: cluster.name == "west" ? {"start": "10.77.2.0", "end": "10.77.2.255"} : {"start": "10.77.3.0", "end": "10.77.3.255"}`))
	w.apply(t, w.Hub.Client, ns, texts(stretchedObjects))
	t.Cleanup(func() {
		w.deleteAtEnd(t, object("danm.io/v1", "ClusterNetwork", "", ns))
		w.deleteAtEnd(t, object("placement.patchbay.io/v1alpha1", "Customization", "patchbay-system", ns))
	})
	x := w.stretchedTraffic(t, ns)
	eventually(t, "each cluster has all endpoints", func() error { return x.checkAddresses(6, 0) })
	stop := x.start(t)

	south := w.Clusters["south"]
	w.apply(t, south.Client, "", texts(refuseSlices))
	t.Cleanup(func() { lift(t, south.Client, ns) })
	eventually(t, "south refuses changes of EndpointSlices", func() error {
		for _, slice := range x.slicesOf("south", labels.Everything()) {
			if strings.Contains(slice.Name, "-remote-") {
				err := south.Client.Update(t.Context(), slice.DeepCopy(), client.DryRunAll)
				return errorUnless(err != nil && strings.Contains(err.Error(), "the test refuses it"), "%v", err)
			}
		}
		return errors.New("south has no EndpointSlice of the agent")
	})
	w.patchCluster(t, "east", `{"spec":{"drain":{"mode":"Move"}}}`)
	t.Cleanup(func() { w.patchCluster(t, "east", `{"spec":{"drain":null}}`) })
	w.annotate(t, object("apps/v1", "Deployment", ns, "moved"), "west")
	for _, name := range []string{"moved", "drained"} {
		eventually(t, name+" waits for south", func() error {
			a, err := w.assignment(t.Context(), ns, "Deployment", name)
			if err != nil {
				return err
			}
			c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionMoveBlocked)
			if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "south has acknowledged") {
				return fmt.Errorf("MoveBlocked: %+v", c)
			}
			return errorUnless(strings.Contains(c.Message, "the test refuses it"), "MoveBlocked: %s", c.Message)
		})
	}
	if n := len(x.podsIn("east")); n != 6 {
		t.Errorf("%d Pods are in east, want all 6 until south has acknowledged", n)
	}
	lift(t, south.Client, ns)
	w.awaitClustersWith(t, object("apps/v1", "Deployment", ns, "moved"), "west")
	w.awaitClustersWith(t, object("apps/v1", "Deployment", ns, "drained"), "west")
	eventually(t, "each cluster has the new endpoints", func() error { return x.checkAddresses(0, 6) })
	stop()
}

// lift lets the agent change its EndpointSlices again.
func lift(t *testing.T, c client.Client, ns string) {
	t.Helper()
	for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"} {
		if err := c.Delete(context.Background(), object("admissionregistration.k8s.io/v1", kind, "", ns)); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	}
}

// stretchedTraffic is requests to a Service on a stretched network, from clients in each cluster in turn. It plays the
// nodes, which give each Pod an address, and each cluster's controller, with package svcwatcher.
type stretchedTraffic struct {
	ns       string
	clusters map[string]*stretchedCluster
	sent     map[string]int // by the client's cluster
	failed   []string

	mu    sync.Mutex
	owner map[string]podIn // by address
}

// podIn is a Pod in a cluster.
type podIn struct{ cluster, pod string }

// stretchedCluster is one cluster of the network.
type stretchedCluster struct {
	pool    netip.Addr // the last address that was assigned
	client  client.Client
	slices  discoverylisters.EndpointSliceNamespaceLister
	named   corelisters.ServiceNamespaceLister
	pods    corelisters.PodNamespaceLister
	byPod   map[string]netip.Addr // by UID
	service *corev1.Service
	network *network.Network
}

// stretchedTraffic starts svcwatcher in each cluster as soon as it has the network and the Service.
func (w *world) stretchedTraffic(t *testing.T, ns string) *stretchedTraffic {
	t.Helper()
	x := &stretchedTraffic{ns: ns, clusters: map[string]*stretchedCluster{}, owner: map[string]podIn{}, sent: map[string]int{}}
	for name, c := range w.Clusters {
		s := &stretchedCluster{client: c.Client, byPod: map[string]netip.Addr{}, service: &corev1.Service{}}
		net := &danm.ClusterNetwork{}
		eventually(t, name+" has the network and the Service", func() error {
			return errors.Join(c.Client.Get(t.Context(), client.ObjectKey{Name: ns}, net), c.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "web"}, s.service))
		})
		w.attach(t, name, ns)
		var err error
		if s.network, err = network.FromClusterNetwork(net); err != nil {
			t.Fatal(err)
		}
		s.pool = s.network.V4.Start
		k, err := kubernetes.NewForConfig(c.Config)
		if err != nil {
			t.Fatal(err)
		}
		f := informers.NewSharedInformerFactoryWithOptions(k, 0, informers.WithNamespace(ns))
		s.slices, s.pods = f.Discovery().V1().EndpointSlices().Lister().EndpointSlices(ns), f.Core().V1().Pods().Lister().Pods(ns)
		s.named = f.Core().V1().Services().Lister().Services(ns)
		f.StartWithContext(t.Context())
		f.WaitForCacheSyncWithContext(t.Context())
		t.Cleanup(f.Shutdown)
		x.clusters[name] = s
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for name := range x.clusters {
		running.Go(func() {
			wait.UntilWithContext(ctx, func(ctx context.Context) { _ = x.publish(ctx, name) }, publishEvery) // again after an error
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return x
}

// attach keeps a network in a cluster, as each cluster's controller does while Pods are attached.
func (w *world) attach(t *testing.T, cluster, name string) {
	t.Helper()
	patch := func(finalizers string) error {
		return w.Clusters[cluster].Client.Patch(context.Background(), object("danm.io/v1", danm.KindClusterNetwork, "", name),
			client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+finalizers+`}}`)))
	}
	if err := patch(`["` + danm.InUseFinalizer + `"]`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := patch("null"); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

// publishEvery is how often the test looks at the Pods, as svcwatcher does at once.
const publishEvery = 100 * time.Millisecond

// podsIn returns the Pods in a cluster.
func (x *stretchedTraffic) podsIn(cluster string) []*corev1.Pod {
	pods, err := x.clusters[cluster].pods.List(labels.Everything())
	if err != nil {
		return nil
	}
	return pods
}

// slicesOf returns the EndpointSlices of the Service in a cluster.
func (x *stretchedTraffic) slicesOf(cluster string, selector labels.Selector) []*discoveryv1.EndpointSlice {
	all, err := x.clusters[cluster].slices.List(selector)
	if err != nil {
		return nil
	}
	return all
}

// publish does what nodes and svcwatcher do: each Pod gets an address, and the Service its EndpointSlices.
func (x *stretchedTraffic) publish(ctx context.Context, name string) error {
	s := x.clusters[name]
	ref := network.Ref{Kind: danm.KindClusterNetwork, Name: x.ns}
	snapshot := &svcwatcher.Snapshot{
		Service: s.service, Networks: map[network.Ref]*network.Network{ref: s.network}, Zone: func(string) string { return "" },
		Request: &network.ServiceRequest{Selector: map[string]string{"tier": "web"}, Networks: []network.Ref{ref}},
	}
	for _, pod := range x.podsIn(name) {
		if pod.Spec.NodeName == "" {
			continue
		}
		a, ok := s.byPod[string(pod.UID)]
		if !ok {
			s.pool = s.pool.Next()
			a = s.pool
			s.byPod[string(pod.UID)] = a
			x.mu.Lock()
			x.owner[a.String()] = podIn{name, pod.Name}
			x.mu.Unlock()
		}
		snapshot.Pods = append(snapshot.Pods, *pod)
		snapshot.DanmEps = append(snapshot.DanmEps, danm.DanmEp{
			ObjectMeta: metav1.ObjectMeta{Namespace: x.ns, Name: pod.Name},
			Spec: danm.DanmEpSpec{
				NetworkName: x.ns, APIType: danm.KindClusterNetwork, Host: pod.Spec.NodeName, Pod: pod.Name, PodUID: string(pod.UID),
				Interface: danm.DanmEpInterface{Name: "eth1", Address: a.String() + "/16"},
			},
		})
	}
	var existing []discoveryv1.EndpointSlice
	for _, slice := range x.slicesOf(name, labels.SelectorFromSet(labels.Set{discoveryv1.LabelManagedBy: svcwatcher.ManagedBy})) {
		existing = append(existing, *slice.DeepCopy())
	}
	changes := svcwatcher.Plan(s.service, svcwatcher.Desired(snapshot).Groups, existing)
	var errs []error
	for i := range changes.Create {
		errs = append(errs, s.client.Create(ctx, &changes.Create[i]))
	}
	for i := range changes.Update {
		errs = append(errs, s.client.Update(ctx, &changes.Update[i]))
	}
	for i := range changes.Delete {
		errs = append(errs, s.client.Delete(ctx, &changes.Delete[i]))
	}
	return errors.Join(errs...) // the cache may be behind
}

// addresses returns the addresses that clients in a cluster send to, sorted.
func (x *stretchedTraffic) addresses(cluster string) (all []string) {
	for _, slice := range x.slicesOf(cluster, labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: "web"})) {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				all = append(all, e.Addresses...)
			}
		}
	}
	slices.Sort(all)
	return all
}

// checkAddresses returns an error unless each cluster has these numbers of addresses of east and of west, and no others.
func (x *stretchedTraffic) checkAddresses(east, west int) error {
	for _, name := range slices.Sorted(maps.Keys(x.clusters)) {
		if x.hasLeft(name) {
			continue
		}
		counts, all := map[string]int{}, x.addresses(name)
		for _, a := range all {
			counts[a[:len("10.77.1.")]]++
		}
		if counts["10.77.1."] != east || counts["10.77.2."] != west || len(all) != east+west {
			return fmt.Errorf("%s has %v", name, all)
		}
	}
	return nil
}

// start sends 200 requests a second until stop is called, which fails the test for each request that failed.
func (x *stretchedTraffic) start(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	names := slices.Sorted(maps.Keys(x.clusters))
	running.Go(func() {
		begin := time.Now()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(begin.Add(time.Duration(n) * requestEvery))):
			}
			from := names[n%len(names)]
			if x.hasLeft(from) { // its clients have, too
				continue
			}
			x.sent[from]++
			if err := x.request(from, n/len(names)); err != nil {
				x.failed = append(x.failed, err.Error())
			}
		}
	})
	return func() {
		t.Helper()
		cancel()
		running.Wait()
		t.Logf("%v requests by the client's cluster, %d failed", x.sent, len(x.failed))
		if len(x.failed) > 0 {
			t.Errorf("%d requests failed, first: %s", len(x.failed), strings.Join(x.failed[:min(len(x.failed), 3)], "; "))
		}
	}
}

// hasLeft reports whether the Service has left a cluster, which is drained.
func (x *stretchedTraffic) hasLeft(cluster string) bool {
	service, err := x.clusters[cluster].named.Get("web")
	return err != nil || service.DeletionTimestamp != nil
}

// request sends one request from a client in a cluster. It succeeds when the Pod with the address is ready; one that
// ends gracefully answers until it is gone.
func (x *stretchedTraffic) request(from string, n int) error {
	all := x.addresses(from)
	if len(all) == 0 {
		return errorUnless(x.hasLeft(from), "%s has no endpoint", from)
	}
	a := all[n%len(all)]
	x.mu.Lock()
	owner, ok := x.owner[a]
	x.mu.Unlock()
	if !ok {
		return fmt.Errorf("request from %s: no Pod has %s", from, a)
	}
	pod, err := x.clusters[owner.cluster].pods.Get(owner.pod)
	if err != nil {
		return fmt.Errorf("request from %s to %s in %s: %w", from, a, owner.cluster, err)
	}
	ready := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }
	return errorUnless(slices.ContainsFunc(pod.Status.Conditions, ready), "request from %s: Pod %s in %s does not answer", from, owner.pod, owner.cluster)
}
