// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/ipam/status"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// growth has nodes whose Pods use one family of a network while its subnet grows.
type growth struct {
	*testing.T
	env      *apitest.Env
	ns       string
	v6       bool
	nodes    []*growingNode
	registry *addressRegistry
}

// growingNode is a node with its cached copy of the network.
type growingNode struct {
	*allocator.Allocator
	name string
	// cached is the network as the node's informer has it.
	cached atomic.Pointer[network.Network]
}

// grownPod is a Pod with its address and DanmEp.
type grownPod struct {
	node *growingNode
	addr netip.Addr
	ep   *v1.DanmEp
}

// newGrowth creates the network and its nodes. Their warm pools and cooldowns are small enough for
// the test.
func newGrowth(t *testing.T, env *apitest.Env, v6 bool, spec v1.NetworkOptions) *growth {
	t.Helper()
	g := &growth{T: t, env: env, ns: env.Namespace(t), v6: v6, registry: newRegistry()}
	o := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("grows")}, Spec: v1.NetworkSpec{NetworkID: "net", NetworkType: "macvlan", Options: spec}}
	if err := env.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		n := &growingNode{name: fmt.Sprintf("node-%d", i)}
		n.Allocator = allocator.New(newStore(t, env.Config, n.name), allocator.Config{
			Node: n.name, NodeUID: "uid-of-" + n.name, Incarnation: 1, WarmPoolSize: 4, Cooldown: 50 * time.Millisecond,
			NodeCount: func() int { return 3 }, FlushDelay: 100 * time.Millisecond, ReclaimTimeout: time.Minute,
		})
		t.Cleanup(n.Close)
		n.cached.Store(g.parse(o))
		g.nodes = append(g.nodes, n)
	}
	return g
}

// parse returns the model of a network.
func (g *growth) parse(o *v1.ClusterNetwork) *network.Network {
	g.Helper()
	n, err := network.FromClusterNetwork(o)
	if err != nil {
		g.Fatal(err)
	}
	return n
}

// ref is the network's name.
func (g *growth) ref() network.Ref { return g.nodes[0].cached.Load().Ref }

// change changes the spec, and returns the network as the nodes' informers get to see it.
func (g *growth) change(change func(*v1.NetworkOptions)) *network.Network {
	g.Helper()
	o := &v1.ClusterNetwork{}
	eventually(g.T, "the spec is changed", func() error {
		if err := g.env.Client.Get(g.Context(), client.ObjectKey{Name: g.ref().Name}, o); err != nil {
			return err
		}
		change(&o.Spec.Options)
		return g.env.Client.Update(g.Context(), o) // a claim at the same time is a conflict
	})
	return g.parse(o)
}

// claim claims an address of the family.
func (g *growth) claim(ctx context.Context, n *growingNode, want allocator.AddressRequest) (netip.Addr, error) {
	v4, v6 := want, allocator.AddressRequest{}
	if g.v6 {
		v4, v6 = v6, v4
	}
	a4, a6, err := n.Claim(ctx, n.cached.Load(), v4, v6)
	if g.v6 {
		return a6, err
	}
	return a4, err
}

// split returns an address as that of its family.
func (g *growth) split(a netip.Addr) (a4, a6 netip.Addr) {
	if g.v6 {
		return a4, a
	}
	return a, a6
}

// attach starts a Pod, as kubelet does: it tries again after an error.
func (g *growth) attach(ctx context.Context, n *growingNode, want allocator.AddressRequest) (*grownPod, error) {
	p := &grownPod{node: n}
	err := retryUntilDone(ctx, func() (err error) {
		p.addr, err = g.claim(ctx, n, want)
		return err
	})
	net := n.cached.Load()
	if err == nil {
		err = g.registry.acquire(network.KeyOf(net), p.addr, n.name)
	}
	if err != nil {
		return nil, err
	}
	name := apitest.Name("ep")
	err = retryUntilDone(ctx, func() error {
		p.ep = &v1.DanmEp{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: g.ns}, Spec: v1.DanmEpSpec{
			NetworkName: net.Ref.Name, NetworkUID: net.UID, APIType: net.Ref.Kind, NetworkType: net.Type,
			EndpointID: name, Host: n.name, HostUID: "uid-of-" + n.name, Pod: "pod", CID: "sandbox", Interface: v1.DanmEpInterface{Name: "eth0"},
		}}
		if g.v6 {
			p.ep.Spec.Interface.AddressIPv6 = p.addr.String() + "/128"
		} else {
			p.ep.Spec.Interface.Address = p.addr.String() + "/32"
		}
		return g.env.Client.Create(ctx, p.ep)
	})
	a4, a6 := g.split(p.addr)
	n.MarkPublished(network.KeyOf(net), name, a4, a6)
	return p, err
}

// detach ends a Pod.
func (g *growth) detach(ctx context.Context, p *grownPod) error {
	key := network.KeyOf(p.node.cached.Load())
	a4, a6 := g.split(p.addr)
	g.registry.release(key, p.addr, p.node.name)
	return errors.Join(
		retryUntilDone(ctx, func() error { return p.node.ReturnToEntry(ctx, key, p.ep.Name, a4, a6) }),
		retryUntilDone(ctx, func() error { return client.IgnoreNotFound(g.env.Client.Delete(ctx, p.ep)) }),
		retryUntilDone(ctx, func() error { return p.node.Free(ctx, key, p.ep.Name, a4, a6) }),
	)
}

// churn starts and ends Pods on all nodes, and checks the stored network, until end is called.
func (g *growth) churn(ctx context.Context) (end func()) {
	stop := make(chan struct{})
	var all sync.WaitGroup
	for _, n := range g.nodes {
		for range 2 {
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					p, err := g.attach(ctx, n, allocator.AddressRequest{Dynamic: true})
					if err == nil {
						err = g.detach(ctx, p)
					}
					if err != nil {
						g.Error(err)
						return
					}
				}
			})
		}
	}
	all.Go(func() {
		for n := g.nodes[0].cached.Load(); ; time.Sleep(20 * time.Millisecond) {
			select {
			case <-stop:
				return
			default:
			}
			if err := g.checkCovered(ctx, n.Ref); err != nil {
				g.Errorf("while Pods come and go: %v", err)
				return
			}
		}
	})
	return sync.OnceFunc(func() { close(stop); all.Wait() })
}

// checkCovered checks that entries, and the DanmEps that existed before and after the read of the
// network, have their bits.
func (g *growth) checkCovered(ctx context.Context, ref network.Ref) error {
	store := kube.NewStore(g.env.Client)
	before, err := store.Endpoints(ctx, ref)
	if err != nil {
		return err
	}
	o, err := store.Get(ctx, ref)
	if err != nil {
		return err
	}
	after, err := store.Endpoints(ctx, ref)
	if err != nil {
		return err
	}
	existed := slices.DeleteFunc(before, func(e status.Endpoint) bool {
		return !slices.ContainsFunc(after, func(a status.Endpoint) bool { return a.UID == e.UID })
	})
	if err := ipamtest.Covered(o, existed); !errors.Is(err, ipamtest.ErrLeak) {
		return err
	}
	return nil // a DanmEp that was created meanwhile covers it
}

// bits waits until exactly these addresses have their bit set. Warm pools are returned before.
func (g *growth) bits(why string, want ...netip.Addr) {
	g.Helper()
	slices.SortFunc(want, netip.Addr.Compare)
	eventually(g.T, why, func() error {
		for _, n := range g.nodes {
			if err := n.ReconcileEntries(g.Context(), network.KeyOf(n.cached.Load())); err != nil {
				return err
			}
		}
		o, err := readNetwork(g.T, g.env, g.nodes[0].cached.Load())
		if err != nil {
			return err
		}
		b := o.IPAM.V4
		if g.v6 {
			b = o.IPAM.V6
		}
		got, err := ipamtest.Bits(b)
		warm := map[netip.Addr]bool{}
		for _, h := range o.IPAM.Held {
			entry, parseErr := status.ParseEntry(h)
			err = errors.Join(err, parseErr)
			for _, a := range entry.Addrs() {
				warm[a] = !entry.IsQuarantined(a)
			}
		}
		got = slices.DeleteFunc(got, func(a netip.Addr) bool { return warm[a] })
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("bits of %v, want %v", got, want)
		}
		return err
	})
}

// A subnet and its allocation pool grow while Pods come and go on three nodes, one of which has the
// former spec cached. No address is in use twice at any moment, and each address stays with its
// owner until its release.
func TestSubnetGrowsInUse(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	addr := netip.MustParseAddr
	cases := map[string]struct {
		reason       string
		was          v1.NetworkOptions
		wider, whole func(*v1.NetworkOptions)
		static, end  netip.Addr // an address in use, and the former last address
		last         netip.Addr // the last address of the wider subnet
	}{
		"IPv4": {
			reason: "The bits move by 64.",
			was:    v1.NetworkOptions{Device: "ens4", CIDR: "10.0.0.64/26", Pool: &v1.IPPool{Start: "10.0.0.65", End: "10.0.0.96"}},
			wider:  func(o *v1.NetworkOptions) { o.Pool.End = "10.0.0.126" },
			whole:  func(o *v1.NetworkOptions) { o.CIDR, o.Pool = "10.0.0.0/24", nil },
			static: addr("10.0.0.120"), end: addr("10.0.0.127"), last: addr("10.0.0.255"),
		},
		"IPv6": {
			reason: "The bits move by 256.",
			was:    v1.NetworkOptions{Device: "ens4", Net6: "fd00::100/120", Pool6: &v1.IPPoolV6{IPPool: v1.IPPool{Start: "fd00::101", End: "fd00::120"}}},
			wider:  func(o *v1.NetworkOptions) { o.Pool6.End = "fd00::1fe" },
			whole:  func(o *v1.NetworkOptions) { o.Net6, o.Pool6 = "fd00::/112", nil },
			static: addr("fd00::190"), end: addr("fd00::1ff"), last: addr("fd00::ffff"),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			g := newGrowth(t, env, strings.Contains(name, "6"), tc.was)
			dynamic, static := allocator.AddressRequest{Dynamic: true}, func(a netip.Addr) allocator.AddressRequest { return allocator.AddressRequest{Static: a} }
			must := func(p *grownPod, err error) *grownPod {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				return p
			}

			// Before: Pods that stay, a static address outside of the range, and one in quarantine.
			lasting := []*grownPod{must(g.attach(ctx, g.nodes[0], static(tc.static)))}
			for _, n := range g.nodes {
				lasting = append(lasting, must(g.attach(ctx, n, dynamic)), must(g.attach(ctx, n, dynamic)))
			}
			bad, err := g.claim(ctx, g.nodes[1], dynamic)
			if err != nil || !g.nodes[1].Quarantine(g.nodes[1].cached.Load(), bad) {
				t.Fatalf("quarantine %v: %v", bad, err)
			}
			endChurn := g.churn(ctx)
			defer endChurn()

			// During: node-2 does not see the changes for a time.
			for _, change := range []func(*v1.NetworkOptions){tc.wider, tc.whole} {
				time.Sleep(300 * time.Millisecond)
				n := g.change(change)
				g.nodes[0].cached.Store(n)
				time.Sleep(100 * time.Millisecond)
				g.nodes[1].cached.Store(n)
				lasting = append(lasting, must(g.attach(ctx, g.nodes[0], dynamic)), must(g.attach(ctx, g.nodes[1], dynamic)))
			}
			stale := g.nodes[2]
			eventually(t, "a claim with the former subnet is refused, when node-2 has no warm address of it", func() error {
				a, err := g.claim(ctx, stale, static(tc.end.Next()))
				if !errors.Is(err, status.ErrTryAgain) {
					return fmt.Errorf("got %v and %w, want ErrTryAgain", a, err)
				}
				return nil
			})
			time.Sleep(300 * time.Millisecond)
			stale.cached.Store(g.nodes[0].cached.Load())
			lasting = append(lasting, must(g.attach(ctx, stale, dynamic)))

			// After: more Pods than the former subnet had addresses; its last one is usual now.
			lasting = append(lasting, must(g.attach(ctx, g.nodes[1], static(tc.end))))
			for i := range 70 {
				lasting = append(lasting, must(g.attach(ctx, g.nodes[i%3], dynamic)))
			}
			time.Sleep(300 * time.Millisecond)
			endChurn()
			if a, err := g.claim(ctx, g.nodes[0], static(tc.last)); !errors.Is(err, allocator.ErrOutside) {
				t.Errorf("%s: claim of the last address %v: got %v and error %v, want ErrOutside", tc.reason, tc.last, a, err)
			}
			if a, err := g.claim(ctx, g.nodes[2], static(tc.static)); !errors.Is(err, allocator.ErrTaken) {
				t.Errorf("%s: claim of an address in use: got %v and error %v, want ErrTaken", tc.reason, a, err)
			}
			used := []netip.Addr{bad}
			for _, p := range lasting {
				used = append(used, p.addr)
			}
			g.bits("each Pod has its bit, and so has the address in quarantine", used...)
			for _, p := range lasting[:8] { // of the former subnet
				if err := g.detach(ctx, p); err != nil {
					t.Fatal(err)
				}
				used = slices.DeleteFunc(used, func(a netip.Addr) bool { return a == p.addr })
			}
			g.bits("the release of a former address frees its bit and no other", used...)
			found, err := gc.NewCollector(kube.NewStore(env.Client), gc.Config{}).RepairBitmap(ctx, network.KeyOf(stale.cached.Load()))
			if err != nil || len(found.Conflicts) > 0 || found.Marked > 0 {
				t.Errorf("%s: the audit found %+v, %v", tc.reason, found, err)
			}
		})
	}
}
