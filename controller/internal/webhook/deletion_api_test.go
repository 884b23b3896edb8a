// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// nodeAllocator claims addresses as a node daemon does.
func nodeAllocator(t *testing.T, env *apitest.Env, node string, hold int) *allocator.Allocator {
	t.Helper()
	return coolingAllocator(t, env, node, hold, -1)
}

// coolingAllocator is nodeAllocator with a cooldown; the default one when zero.
func coolingAllocator(t *testing.T, env *apitest.Env, node string, hold int, cooldown time.Duration) *allocator.Allocator {
	t.Helper()
	a := allocator.New(kube.NewStore(env.Client), allocator.Config{Node: node, NodeUID: node, Incarnation: 1, WarmPoolSize: hold, Cooldown: cooldown})
	t.Cleanup(a.Close)
	return a
}

// danmNet creates a DanmNet with a subnet, on a device of its own.
func danmNet(t *testing.T, env *apitest.Env, ns, name string) (*v1.DanmNet, *network.Network) {
	t.Helper()
	o := &v1.DanmNet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	o.Spec = v1.NetworkSpec{NetworkID: "n", Options: v1.NetworkOptions{Device: apitest.Name("d")[:12], CIDR: "10.0.0.0/24"}}
	if err := env.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	n, err := network.FromObject(o)
	if err != nil {
		t.Fatal(err)
	}
	return o, n
}

// plug does what the daemon does at ADD: it claims the address, then creates the DanmEp.
func plug(ctx context.Context, env *apitest.Env, a *allocator.Allocator, n *network.Network) (*v1.DanmEp, error) {
	v4, _, err := a.Claim(ctx, n, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{})
	if err != nil {
		return nil, err
	}
	ep := &v1.DanmEp{ObjectMeta: metav1.ObjectMeta{Namespace: n.Ref.Namespace, Name: apitest.Name("ep"), Finalizers: []string{v1.NodeFinalizer}}}
	ep.Spec = v1.DanmEpSpec{
		NetworkName: n.Ref.Name, NetworkUID: n.UID, APIType: n.Ref.Kind, Host: "n1", Pod: "web", EndpointID: "x", CID: "y",
		Interface: v1.DanmEpInterface{Name: "eth1", Address: netip.PrefixFrom(v4, 24).String()},
	}
	if err := env.Client.Create(ctx, ep); err != nil {
		return nil, fmt.Errorf("create DanmEp: %w", err)
	}
	a.MarkPublished(network.KeyOf(n), ep.Name, v4, netip.Addr{})
	return ep, nil
}

// unplug does what the daemon does at DEL.
func unplug(ctx context.Context, env *apitest.Env, a *allocator.Allocator, n *network.Network, ep *v1.DanmEp) error {
	p, err := netip.ParsePrefix(ep.Spec.Interface.Address)
	if err != nil {
		return err
	}
	key := network.KeyOf(n)
	if err := a.ReturnToEntry(ctx, key, ep.Name, p.Addr(), netip.Addr{}); err != nil {
		return err
	}
	if err := env.Client.Patch(ctx, ep, merge(`{"metadata": {"finalizers": null}}`)); err != nil {
		return err
	}
	if err := client.IgnoreNotFound(env.Client.Delete(ctx, ep)); err != nil {
		return err
	}
	return a.Free(ctx, key, ep.Name, p.Addr(), netip.Addr{})
}

// createPod creates a Pod that no kubelet starts.
func createPod(t *testing.T, env *apitest.Env, ns, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}},
	}
	if err := env.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// A network that only DanmEps of DANM name is not deleted under their Pods: it has no finalizer, and
// they have no UID of it.
func TestDeletionUnderDANMsPods(t *testing.T) {
	env := start(t)
	ns := env.Namespace(t)
	o, _ := danmNet(t, env, ns, "live")
	ep := &v1.DanmEp{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: apitest.Name("ep")}}
	ep.Spec = v1.DanmEpSpec{
		NetworkName: "live", APIType: v1.KindDanmNet, Host: "n1", Pod: "web", EndpointID: "x", CID: "y",
		Interface: v1.DanmEpInterface{Name: "eth0", Address: "10.0.0.5/24"},
	}
	if err := env.Client.Create(t.Context(), ep); err != nil {
		t.Fatal(err)
	}
	err := env.Client.Delete(t.Context(), o.DeepCopy())
	if want := "delete the DanmEp " + ns + "/" + ep.Name + " first"; !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("delete the network of a DanmEp of DANM without a Pod: got %v, want %q in it", err, want)
	}
	createPod(t, env, ns, "web")
	err = env.Client.Delete(t.Context(), o.DeepCopy())
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "Pod "+ns+"/web on node n1") || !strings.Contains(err.Error(), "delete the Pods first") {
		t.Errorf("delete the network of a DanmEp of DANM: got %v, want an error that names the Pod", err)
	}
	if err := env.Client.Delete(t.Context(), ep); err != nil {
		t.Fatal(err)
	}
	if err := env.Client.Delete(t.Context(), o); err != nil {
		t.Errorf("delete the unused network: %v", err)
	}
}

// A network is deleted while a Pod attaches, again and again. Either the deletion is rejected, or
// the Pod is, or the network stays until the Pod is gone. It never disappears under a Pod, and
// never stays for good.
func TestDeletionWhileAPodAttaches(t *testing.T) {
	env := start(t)
	ns := env.Namespace(t)
	createPod(t, env, ns, "web")
	const rounds = 60
	outcomes := map[string]int{}
	controller := gc.NewCollector(kube.NewStore(env.Client), gc.Config{})
	for round := range rounds {
		o, n := danmNet(t, env, ns, fmt.Sprintf("net%d", round))
		a := nodeAllocator(t, env, "n1", -1)
		if round%3 == 0 { // a Pod was here before, so that deletion has to ask
			ep, err := plug(t.Context(), env, a, n)
			if err == nil {
				err = unplug(t.Context(), env, a, n, ep)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var ep *v1.DanmEp
		var refused, deleted error
		var g errgroup.Group
		g.Go(func() error { ep, refused = plug(t.Context(), env, a, n); return nil })
		g.Go(func() error {
			<-time.After(time.Duration(round%8) * 3 * time.Millisecond) // spread over what the other does
			deleted = env.Client.Delete(t.Context(), o.DeepCopy())
			return nil
		})
		_ = g.Wait()
		now := &v1.DanmNet{}
		err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), now)
		gone := apierrors.IsNotFound(err)
		switch {
		case refused == nil && gone:
			t.Fatalf("round %d: the network is gone under a Pod (delete: %v)", round, deleted)
		case refused == nil && deleted == nil:
			outcomes["both, and it stays for the Pod"]++
		case refused == nil:
			outcomes["deletion rejected"]++
		default:
			outcomes["Pod rejected"]++
		}
		if ep != nil {
			if err := unplug(t.Context(), env, a, n, ep); err != nil {
				t.Fatalf("round %d: release: %v", round, err)
			}
		}
		if deleted != nil {
			eventually(t, "the network is deleted without a Pod", func() bool {
				return client.IgnoreNotFound(env.Client.Delete(t.Context(), o.DeepCopy())) == nil
			})
		}
		eventually(t, "the network goes when the Pod is gone", func() bool {
			_, _ = controller.RemoveFinalizer(t.Context(), network.KeyOf(n)) // the controller does so after a change
			return apierrors.IsNotFound(env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), &v1.DanmNet{}))
		})
	}
	t.Logf("%d rounds: %v", rounds, outcomes)
}

// A user deletes a network right after its Pod, when its node has not detached the Pod yet. The
// deletion waits for that, with the rights of patchbay-controller, and for no Pod that exists.
func TestDeletionWaitsForDetachment(t *testing.T) {
	t.Parallel()
	env := start(t)
	ns := env.Namespace(t)
	o, n := danmNet(t, env, ns, "net")
	a := nodeAllocator(t, env, "n1", -1)
	ep, err := plug(t.Context(), env, a, n)
	if err != nil {
		t.Fatal(err)
	}
	pod := createPod(t, env, ns, ep.Spec.Pod)
	checkAnswer(t, "the Pod exists", env.Client.Delete(t.Context(), o.DeepCopy()), []string{"metadata.name", "Pod " + ns + "/web", "delete the Pods first"})
	if err := env.Client.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	checkAnswer(t, "a dry run does not wait", env.Client.Delete(t.Context(), o.DeepCopy(), client.DryRunAll), []string{"has not yet detached Pod " + ns + "/web"})
	deleted := make(chan error, 1)
	go func() { deleted <- env.Client.Delete(t.Context(), o.DeepCopy()) }()
	select {
	case err := <-deleted:
		t.Fatalf("the deletion did not wait for the node: %v", err)
	case <-time.After(2 * time.Second): // as long as a busy node takes
	}
	if err := unplug(t.Context(), env, a, n, ep); err != nil {
		t.Fatal(err)
	}
	if err := <-deleted; err != nil {
		t.Fatalf("delete after the node has detached the Pod: %v", err)
	}
	controller := gc.NewCollector(kube.NewStore(env.Client), gc.Config{})
	eventually(t, "the network is gone", func() bool {
		_, _ = controller.RemoveFinalizer(t.Context(), network.KeyOf(n)) // the controller does so after a change
		return apierrors.IsNotFound(env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), &v1.DanmNet{}))
	})
}

// A user deletes a network right after its Pods, at the pace of a tutorial. The node returns its
// pre-allocated addresses on request, and the deletion waits for that. If it does not, the user is
// told to try again.
func TestDeletionWaitsForWarmAddresses(t *testing.T) {
	t.Parallel()
	const pace = 2 * time.Second // from one command to the next
	env := start(t)
	cases := map[string]struct {
		reason   string
		cooldown time.Duration // the default one when zero
		returns  bool
	}{
		"Returned": {"The daemon sees that the network changes, reads the request and returns the addresses.", -1, true},
		"Cooldown": {"It returns the address of the last Pod when its cooldown is over.", 0, true},
		"Never":    {"The daemon does not run.", -1, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, n := danmNet(t, env, env.Namespace(t), "net")
			a := coolingAllocator(t, env, "n7", 8, tc.cooldown)
			ep, err := plug(t.Context(), env, a, n)
			if err == nil {
				err = unplug(t.Context(), env, a, n, ep)
			}
			if err != nil {
				t.Fatal(err)
			}
			if held := heldBy(t, env, o, "n7"); held == "" {
				t.Fatal("the node has no pre-allocated address: the deletion would have nothing to wait for")
			}
			if tc.returns {
				go observeChanges(t.Context(), env, a, o)
			}
			time.Sleep(pace)
			begin := time.Now()
			err = env.Client.Delete(t.Context(), o.DeepCopy())
			t.Logf("the deletion took %v: %v", time.Since(begin).Round(10*time.Millisecond), err)
			if !tc.returns {
				checkAnswer(t, tc.reason, err, []string{"metadata.name", "node n7", "try again in"})
				return
			}
			if err != nil {
				t.Fatalf("%s\ndelete: %v", tc.reason, err)
			}
			controller := gc.NewCollector(kube.NewStore(env.Client), gc.Config{})
			eventually(t, "the network is gone", func() bool {
				_, _ = controller.RemoveFinalizer(t.Context(), network.KeyOf(n)) // the controller does so after a change
				return apierrors.IsNotFound(env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), &v1.DanmNet{}))
			})
		})
	}
}

// heldBy returns the IPv4 addresses that a node has pre-allocated.
func heldBy(t *testing.T, env *apitest.Env, o *v1.DanmNet, node string) string {
	t.Helper()
	now := &v1.DanmNet{}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), now); err != nil {
		t.Fatal(err)
	}
	if now.Status.IPAM == nil {
		return ""
	}
	return now.Status.IPAM.Held[node].V4
}

// observeChanges tells an allocator each new resourceVersion, as the daemon's watch does.
func observeChanges(ctx context.Context, env *apitest.Env, a *allocator.Allocator, o *v1.DanmNet) {
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		now := &v1.DanmNet{}
		if env.Client.Get(ctx, client.ObjectKeyFromObject(o), now) == nil {
			a.ObserveVersion(network.Key{Ref: kube.NetworkRefOf(v1.KindDanmNet, now), UID: string(now.UID)}, now.ResourceVersion)
		}
	}
}

// Pre-allocated addresses are released when a change of the network needs that.
func TestChangeWhileNodesHold(t *testing.T) {
	env := start(t)
	o, n := danmNet(t, env, env.Namespace(t), "net")
	a := nodeAllocator(t, env, "n7", 8)
	ep, err := plug(t.Context(), env, a, n)
	if err != nil {
		t.Fatal(err)
	}
	patch := merge(`{"spec": {"Options": {"cidr": "10.1.0.0/24"}}}`)
	change := func(opts ...client.PatchOption) error {
		return env.Client.Patch(t.Context(), o.DeepCopy(), patch, opts...)
	}
	checkAnswer(t, "a Pod is attached", change(), []string{"spec.Options.cidr", "web", "delete the Pods first"})
	if err := unplug(t.Context(), env, a, n, ep); err != nil {
		t.Fatal(err)
	}
	pressure := func() *metav1.MicroTime {
		now := &v1.DanmNet{}
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), now); err != nil {
			t.Fatal(err)
		}
		a.ObserveVersion(network.KeyOf(n), now.ResourceVersion) // as the daemon's watch does
		if now.Status.IPAM == nil {
			return nil
		}
		return now.Status.IPAM.ReclaimRequestTime
	}
	checkAnswer(t, "a node holds addresses", change(client.DryRunAll), []string{"spec.Options.cidr", "node n7", "try again in"})
	if pressure() != nil {
		t.Error("a dry run asked the nodes")
	}
	checkAnswer(t, "a node holds addresses", change(), []string{"spec.Options.cidr", "node n7", "try again in"})
	eventually(t, "the node is asked", func() bool { return pressure() != nil })
	eventually(t, "the change is admitted", func() bool { pressure(); return change() == nil })
}
