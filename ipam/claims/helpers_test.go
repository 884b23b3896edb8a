// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/ipam/ipamtest"
)

var (
	dynamic = claims.Want{Dynamic: true}
	none    = claims.Want{}
	no      netip.Addr
)

func static(s string) claims.Want { return claims.Want{Static: addr(s)} }

func addr(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

// subnet is a subnet whose dynamic range is all of it but the ends.
func subnet(cidr string) *network.Subnet {
	if cidr == "" {
		return nil
	}
	p := netip.MustParsePrefix(cidr)
	return &network.Subnet{CIDR: p}
}

// clusterNetwork is a network with these subnets; "" for none.
func clusterNetwork(v4, v6 string) *network.Network {
	return &network.Network{
		Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "net"}, Type: "ipvlan",
		V4: subnet(v4), V6: subnet(v6),
	}
}

// world is one network in a store in memory, in a bubble of virtual time.
type world struct {
	*testing.T
	store *ipamtest.Fake
	net   *network.Network
	nodes []*claims.Allocator
	// reports are what allocators could tell no caller.
	reports []error
	// damaged says that the test breaks the law of the bitmap itself.
	damaged bool
}

// inWorld runs f with a network; afterwards no bit may have been uncovered.
func inWorld(t *testing.T, net *network.Network, f func(*world)) {
	t.Helper()
	t.Parallel()
	inWorldOnce(t, net, f)
}

// inWorldOnce is inWorld for one of several worlds of a test.
func inWorldOnce(t *testing.T, net *network.Network, f func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: ipamtest.NewFake()}
		w.net = w.store.Create(net)
		defer func() {
			for _, n := range w.nodes {
				n.Close()
			}
		}()
		f(w)
		for _, p := range w.store.Problems() {
			if !w.damaged {
				t.Error(p)
			}
		}
	})
}

// node starts an allocator over the world's store.
func (w *world) node(name string, uses ...claims.Use) *claims.Allocator {
	return w.nodeOver(w.store, name, uses...)
}

func (w *world) nodeOver(s claims.Store, name string, uses ...claims.Use) *claims.Allocator {
	var mu sync.Mutex
	a := claims.New(s, claims.Config{
		Node: name, NodeUID: name + "-uid",
		Rand: func() float64 { return 0.5 }, Hold: -1, Cool: -1,
		Report: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			w.reports = append(w.reports, err)
		},
	})
	a.Resume(uses, nil)
	w.nodes = append(w.nodes, a)
	return a
}

// claim claims and expects success.
func (w *world) claim(a *claims.Allocator, v4, v6 claims.Want) (netip.Addr, netip.Addr) {
	w.Helper()
	a4, a6, err := a.Claim(w.Context(), w.net, v4, v6)
	if err != nil {
		w.Fatalf("Claim: %v", err)
	}
	return a4, a6
}

// claimAside starts a claim whose outcome is not the point.
func (w *world) claimAside(a *claims.Allocator) {
	go func() { _, _, _ = a.Claim(w.Context(), w.net, dynamic, none) }()
}

// publish makes the DanmEp of an attachment and says so.
func (w *world) publish(a *claims.Allocator, node string, a4, a6 netip.Addr) {
	w.store.AddEndpoint(w.net.Ref, w.endpoint(node, a4, a6))
	a.Published(w.key(), w.endpoint(node, a4, a6).Name, a4, a6)
}

func (w *world) endpoint(node string, a4, a6 netip.Addr) claims.Endpoint {
	return claims.Endpoint{
		Namespace: "ns", Name: "ep-" + node + "-" + a4.String() + "-" + a6.String(),
		NetworkUID: w.net.UID, Node: node, V4: a4, V6: a6,
	}
}

// release is Return, DanmEp away, Free.
func (w *world) release(a *claims.Allocator, node string, a4, a6 netip.Addr) {
	w.Helper()
	if err := a.Return(w.Context(), w.key(), "", a4, a6); err != nil {
		w.Fatal(err)
	}
	ep := w.endpoint(node, a4, a6)
	w.store.RemoveEndpoint(ep.Namespace, ep.Name)
	if err := a.Free(w.Context(), w.key(), "", a4, a6); err != nil {
		w.Fatal(err)
	}
}

func (w *world) key() claims.Key { return claims.KeyOf(w.net) }

// endDeletion is what the controller does when it sees a network in deletion move, over
// a store that may fail.
func (w *world) endDeletion(store claims.Store) error {
	_, err := claims.NewSteward(store, claims.StewardConfig{}).EndDeletion(w.Context(), w.key())
	return err
}

// idle lets all that is due happen.
func (w *world) idle() {
	time.Sleep(time.Minute)
	synctest.Wait()
}

// bits returns the addresses in use.
func (w *world) bits() []string {
	w.Helper()
	var out []string
	ipam := w.ipam()
	for _, b := range []*v1.AddressBitmap{ipam.V4, ipam.V6} {
		used, err := ipamtest.Bits(b)
		if err != nil {
			w.Fatal(err)
		}
		for _, a := range used {
			out = append(out, a.String())
		}
	}
	return out
}

// entry returns a node's entry as "v4 v6", or "-" without one.
func (w *world) entry(node string) string {
	h, ok := w.ipam().Held[node]
	if !ok {
		return "-"
	}
	return h.V4 + " " + h.V6
}

func (w *world) ipam() *v1.IPAMStatus {
	o := w.store.Object(w.net.Ref)
	if o == nil || o.IPAM == nil {
		return &v1.IPAMStatus{}
	}
	return o.IPAM
}

// script is a store whose requests meet these faults, each once, in order, by
// method; afterwards all is well. It notes the methods called.
type script struct {
	mu     sync.Mutex
	faults map[ipamtest.Op][]ipamtest.Fault
	ops    []string
}

func (s *script) next(op ipamtest.Op) ipamtest.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, string(op))
	if left := s.faults[op]; len(left) > 0 {
		s.faults[op] = left[1:]
		return left[0]
	}
	return ipamtest.Fault{}
}

// set replaces the faults that are left for a method.
func (s *script) set(op ipamtest.Op, faults []ipamtest.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[op] = faults
}

// called returns the methods called so far.
func (s *script) called() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ops)
}

// scripted is a store with faults on writes of status, after the very first.
func (w *world) scripted(updates ...ipamtest.Fault) (*ipamtest.Faulty, *script) {
	if w.store.Object(w.net.Ref).IPAM == nil {
		w.store.SetIPAM(w.net.Ref, &v1.IPAMStatus{})
	}
	s := &script{faults: map[ipamtest.Op][]ipamtest.Fault{ipamtest.OpUpdate: updates}}
	return &ipamtest.Faulty{Store: w.store, Next: s.next}, s
}
