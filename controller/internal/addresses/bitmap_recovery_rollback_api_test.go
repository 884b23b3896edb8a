// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package addresses

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// tokenOf returns a client with the token that kubelet projects into the daemon's Pod on a node.
func (f *fixture) tokenOf(node *corev1.Node) client.WithWatch {
	f.Helper()
	const namespace, name = "patchbay-system", "patchbayd"
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-" + node.Name},
		Spec:       corev1.PodSpec{NodeName: node.Name, ServiceAccountName: name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, account, pod} {
		if err := f.env.Client.Create(f.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			f.Fatal(err)
		}
	}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if err := f.env.Client.SubResource("token").Create(f.Context(), account, token); err != nil {
		f.Fatal(err)
	}
	config := rest.AnonymousClientConfig(f.env.Config)
	config.BearerToken = token.Status.Token
	c, err := client.NewWithWatch(config, client.Options{Scheme: f.env.Client.Scheme()})
	if err != nil {
		f.Fatal(err)
	}
	return c
}

// member is the part of a node daemon that takes part in recoveries. Of a network that it does not
// use, it sees only the metadata.
type member struct {
	*allocator.Allocator
	api client.WithWatch
	net *network.Network
}

// member starts a node daemon, which ends with the test.
func (f *fixture) member(ctx context.Context, node *corev1.Node, net *network.Network) *member {
	f.Helper()
	m := &member{api: f.env.As(f, apitest.NodeDaemon(node.Name)), net: net}
	m.Allocator = allocator.New(kube.NewStore(m.api), allocator.Config{
		Node: node.Name, NodeUID: string(node.UID), Incarnation: 1, Cooldown: 50 * time.Millisecond, WarmPoolIdleTimeout: time.Second,
	})
	f.Cleanup(m.Close)
	go m.watch(ctx)
	return m
}

// watch does what the daemon's informer does.
func (m *member) watch(ctx context.Context) {
	for reported := ""; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind("ClusterNetworkList"))
		w, err := m.api.Watch(ctx, list)
		if err != nil {
			continue
		}
		for e := range w.ResultChan() {
			o, ok := e.Object.(*metav1.PartialObjectMetadata)
			if !ok || e.Type == watch.Deleted || string(o.UID) != m.net.UID {
				continue
			}
			m.ObserveVersion(network.KeyOf(m.net), o.ResourceVersion)
			if since := o.Annotations[v1.RecoveringAnnotation]; since != "" && since != reported {
				reported = since
				m.ReportToRecovery(network.KeyOf(m.net))
			}
		}
	}
}

// findsRollback makes the node detect a rollback of the object.
func (m *member) findsRollback() {
	const newer = "1000000000000"
	m.ObserveVersion(network.KeyOf(m.net), newer)
	m.ObserveVersion(network.KeyOf(m.net), "1")
}

// recoveries observes the recoveries of a network.
type recoveries struct {
	*fixture
	cn    *v1.ClusterNetwork
	begun []time.Time
}

// current returns the network's recovery, or nil.
func (r *recoveries) current(ctx context.Context) *v1.RecoveryStatus {
	ipam := r.get(ctx, r.cn).Status.IPAM
	if ipam == nil || ipam.Recovering == nil {
		return nil
	}
	if since := ipam.Recovering.StartTime.Time; !slices.ContainsFunc(r.begun, since.Equal) {
		r.begun = append(r.begun, since)
	}
	return ipam.Recovering
}

// Two nodes detect one after the other that the network's object went back in time; the second one
// after it has reported to the recovery that the first one started. Nodes that do not use the
// network are awaited too. The recovery ends within two minutes, and no address is allocated twice.
func TestTwoRecoveriesInARowEnd(t *testing.T) {
	env := apitest.New(t) // alone, since all Nodes are awaited
	f := startWith(t, env, func(cfg *Config) { *cfg = Config{NodeGracePeriod: cfg.NodeGracePeriod, Metrics: cfg.Metrics} })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cn := f.network(nil)
	net, err := network.FromObject(f.get(ctx, cn))
	if err != nil {
		t.Fatal(err)
	}
	var members []*member
	var all sync.WaitGroup
	ns, users := env.Namespace(t), &sync.Map{}
	over := make(chan struct{})
	var served [3]int
	for i := range 5 { // two are idle
		node := f.node(fmt.Sprint("node-", i))
		m := f.member(ctx, node, net)
		members = append(members, m)
		if i >= len(served) {
			continue
		}
		w := &worker{Allocator: m.Allocator, f: f, net: net, node: node.Name, namespace: ns, users: users}
		all.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				switch err := w.pod(ctx); {
				case err == nil:
					served[i]++
				case !errors.Is(err, status.ErrTryAgain) && !errors.Is(err, allocator.ErrExhausted):
					t.Error(err)
					return
				}
			}
		})
	}
	r := &recoveries{fixture: f, cn: cn}
	members[0].findsRollback()
	f.eventually("the second node to report to the first recovery", func(ctx context.Context) error {
		if rec := r.current(ctx); rec == nil || !slices.Contains(rec.ReportedNodes, "node-1") {
			return fmt.Errorf("recovering is %+v", rec)
		}
		return nil
	})
	begin := time.Now()
	members[1].findsRollback()
	f.eventually("the second recovery to begin", func(ctx context.Context) error {
		if r.current(ctx); len(r.begun) < 2 {
			return fmt.Errorf("begun: %v", r.begun)
		}
		return nil
	})
	f.eventually("the second recovery to end", func(ctx context.Context) error {
		if rec := r.current(ctx); rec != nil {
			return fmt.Errorf("recovering is %+v", rec)
		}
		return nil
	})
	if took := time.Since(begin); took > 2*time.Minute || len(r.begun) != 2 {
		t.Errorf("%d recoveries; the second one took %s", len(r.begun), took)
	}
	close(over)
	all.Wait()
	for i, m := range members {
		f.eventually(fmt.Sprintf("an address on node-%d", i), func(ctx context.Context) error {
			a4, _, err := m.Claim(ctx, net, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{})
			if err == nil {
				m.Discard(net, a4, a4)
			}
			return err
		})
	}
	t.Logf("the second recovery ended after %s; Pods served: %v", time.Since(begin).Round(time.Millisecond), served)
}

// A compromised node, with the token of its daemon, can neither start nor restart recoveries at
// will. With rollback reports it stops the other nodes three times in ten minutes at most.
func TestHostileNodeAndRecoveries(t *testing.T) {
	env := apitest.New(t)
	f := start(t, env)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	bad, good := f.node("bad"), f.node("good")
	token := f.tokenOf(bad)
	cn := f.network(&v1.IPAMStatus{V4: bitmap()})
	net, err := network.FromObject(f.get(ctx, cn))
	if err != nil {
		t.Fatal(err)
	}
	r := &recoveries{fixture: f, cn: cn}
	calm := f.get(ctx, cn)
	for try := range 81 {
		f.refuseRecoveries(ctx, token, calm, "calm", try)
		if r.current(ctx) != nil {
			t.Fatal("a recovery has begun")
		}
	}
	attack := f.attackWithReports(token, r)
	f.eventually("a recovery to begin", func(ctx context.Context) error {
		attack(ctx)
		if r.current(ctx) == nil {
			return errors.New("it has not")
		}
		return nil
	})
	f.refuseRecoveries(ctx, token, r.get(ctx, cn), "in a recovery", 1) // which waits for the other node
	honest := f.member(ctx, good, net)
	for range 200 {
		attack(ctx)
		r.current(ctx)
		time.Sleep(50 * time.Millisecond)
	}
	f.eventually("the node to be deferred", func(ctx context.Context) error {
		attack(ctx)
		if r.current(ctx); len(r.begun) != 3 {
			return fmt.Errorf("%d recoveries", len(r.begun))
		}
		if _, ok := f.get(ctx, cn).Status.IPAM.RecoveryDeferredUntil["bad"]; !ok {
			return errors.New("it is not")
		}
		_, _, err := honest.Claim(ctx, net, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{})
		return err
	})
	f.condition(cn, v1.ConditionRecoveryDeferred, metav1.ConditionTrue, v1.ReasonTooManyRollbacks, "bad (until ")
	f.event(cn, v1.ReasonTooManyRollbacks, "bad (until ")
	f.refuseRecoveries(ctx, token, f.get(ctx, cn), "recoveryDeferredUntil", 1)
	if len(r.begun) != 3 {
		t.Errorf("%d recoveries began with reports of one node, want 3", len(r.begun))
	}
}

// attackWithReports makes a node report a rollback whenever it can, and obey the other rules: it
// reports to each recovery at once.
func (f *fixture) attackWithReports(token client.Client, r *recoveries) func(context.Context) {
	return func(ctx context.Context) {
		fresh := f.get(ctx, r.cn)
		entry := v1.HeldAddresses{UID: "uid", Seq: 1, Rollback: &v1.RollbackReport{Reason: v1.RollbackOlderResourceVersion}}
		if rec := fresh.Status.IPAM.Recovering; rec != nil {
			entry.Rollback.RecoveryStartTime = &rec.StartTime
			if !slices.Contains(rec.ReportedNodes, "bad") {
				rec.ReportedNodes, entry.Rollback = append(rec.ReportedNodes, "bad"), nil
			}
		}
		if fresh.Status.IPAM.Held == nil {
			fresh.Status.IPAM.Held = map[string]v1.HeldAddresses{}
		}
		fresh.Status.IPAM.Held["bad"] = entry
		// The API server forbids to replace a report before a recovery has answered it.
		if err := token.Status().Update(ctx, fresh); err != nil && !apierrors.IsConflict(err) && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			f.Fatal(err)
		}
	}
}

// refuseRecoveries tries to start, restart or end a recovery, and to defer another node, through
// each verb of the API.
func (f *fixture) refuseRecoveries(ctx context.Context, token client.Client, now *v1.ClusterNetwork, when string, try int) {
	f.Helper()
	since := metav1.NewMicroTime(time.Now().Add(time.Duration(try) * time.Millisecond))
	changes := map[string]func(*v1.IPAMStatus){
		"begin": func(s *v1.IPAMStatus) { s.Recovering = &v1.RecoveryStatus{StartTime: since} },
		"begin and report": func(s *v1.IPAMStatus) {
			s.Recovering = &v1.RecoveryStatus{StartTime: since, ReportedNodes: []string{"bad"}}
		},
		"defer another": func(s *v1.IPAMStatus) { s.RecoveryDeferredUntil = map[string]metav1.MicroTime{"good": since} },
		"forge another's report": func(s *v1.IPAMStatus) {
			s.Held = map[string]v1.HeldAddresses{"good": {UID: "uid", Seq: 1, Rollback: &v1.RollbackReport{Reason: v1.RollbackOlderResourceVersion}}}
		},
	}
	if now.Status.IPAM.Recovering != nil {
		changes["end"] = func(s *v1.IPAMStatus) { s.Recovering = nil }
		changes["report for another"] = func(s *v1.IPAMStatus) { s.Recovering.ReportedNodes = []string{"bad", "good", "others"} }
	}
	if now.Status.IPAM.RecoveryDeferredUntil != nil {
		changes["end its deferral"] = func(s *v1.IPAMStatus) { s.RecoveryDeferredUntil = nil }
	}
	for what, change := range changes {
		next := now.DeepCopy()
		next.ResourceVersion = ""
		change(next.Status.IPAM)
		for how, err := range f.writeStatus(ctx, token, next) {
			if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
				f.Fatalf("%s, %s by %s: got %v, want it rejected", when, what, how, err)
			}
		}
	}
}

// writeStatus writes a status through each verb, and returns the answers.
func (f *fixture) writeStatus(ctx context.Context, token client.Client, next *v1.ClusterNetwork) map[string]error {
	f.Helper()
	ipam, err := runtime.DefaultUnstructuredConverter.ToUnstructured(next.Status.IPAM)
	if err != nil {
		f.Fatal(err)
	}
	patch := func(kind types.PatchType, body any) error {
		data, err := json.Marshal(body)
		if err != nil {
			f.Fatal(err)
		}
		return token.Status().Patch(ctx, next.DeepCopy(), client.RawPatch(kind, data))
	}
	applied := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"ipam": ipam}}}
	applied.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(v1.KindClusterNetwork))
	applied.SetName(next.Name)
	merged := map[string]any{"recovering": nil, "recoveryDeferredUntil": nil}
	maps.Copy(merged, ipam)
	return map[string]error{
		"update": retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			fresh := f.get(ctx, next)
			fresh.Status.IPAM = next.Status.IPAM
			return token.Status().Update(ctx, fresh)
		}),
		"merge patch": patch(types.MergePatchType, map[string]any{"status": map[string]any{"ipam": merged}}),
		"json patch":  patch(types.JSONPatchType, []any{map[string]any{"op": "replace", "path": "/status/ipam", "value": ipam}}),
		"apply": token.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(applied),
			client.ForceOwnership, client.FieldOwner("bad")),
	}
}
