// SPDX-License-Identifier: Apache-2.0

// Package testbed is for the tests of allocator and gc: it has one network in an in-memory
// store, nodes that claim its addresses, and injected faults, in a synctest bubble.
package testbed

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// Dynamic requests any free address.
func Dynamic() allocator.AddressRequest { return allocator.AddressRequest{Dynamic: true} }

// Static requests this address.
func Static(s string) allocator.AddressRequest { return allocator.AddressRequest{Static: Addr(s)} }

// None requests no address.
func None() allocator.AddressRequest { return allocator.AddressRequest{} }

// NoAddr is the invalid address.
func NoAddr() netip.Addr { return netip.Addr{} }

// Addr parses an address. The empty text is the invalid address.
func Addr(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

// subnet returns a subnet whose dynamic range has all addresses but the first and the last.
func subnet(cidr string) *network.Subnet {
	if cidr == "" {
		return nil
	}
	p := netip.MustParsePrefix(cidr)
	return &network.Subnet{CIDR: p}
}

// ClusterNetwork returns a ClusterNetwork with these subnets; "" means none.
func ClusterNetwork(v4, v6 string) *network.Network {
	return &network.Network{
		Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "net"}, Type: "ipvlan",
		V4: subnet(v4), V6: subnet(v6),
	}
}

// World has one network in an in-memory store, in a synctest bubble.
type World struct {
	*testing.T
	Store *ipamtest.Fake
	Net   *network.Network
	Nodes []*allocator.Allocator
	// Reports are the errors that allocators passed to Config.Report.
	Reports []error
	// Damaged means that the test itself damages the bitmap.
	Damaged bool
}

// RunTest runs f with a network, in parallel with other tests. It fails the test if any write
// left a bit uncovered.
func RunTest(t *testing.T, net *network.Network, f func(*World)) {
	t.Helper()
	t.Parallel()
	RunOnce(t, net, f)
}

// RunOnce is RunTest for a test that runs several worlds.
func RunOnce(t *testing.T, net *network.Network, f func(*World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &World{T: t, Store: ipamtest.NewFake()}
		w.Net = w.Store.Create(net)
		defer func() {
			for _, n := range w.Nodes {
				n.Close()
			}
		}()
		f(w)
		for _, p := range w.Store.Problems() {
			if !w.Damaged {
				t.Error(p)
			}
		}
	})
}

// Node starts an allocator over the world's store.
func (w *World) Node(name string, uses ...allocator.Use) *allocator.Allocator {
	return w.NodeOver(w.Store, name, uses...)
}

// NodeOver starts an allocator without warm pool and cooldown over a store.
func (w *World) NodeOver(s allocator.Store, name string, uses ...allocator.Use) *allocator.Allocator {
	var mu sync.Mutex
	a := allocator.New(s, allocator.Config{
		Node: name, NodeUID: name + "-uid",
		Rand: func() float64 { return 0.5 }, WarmPoolSize: -1, Cooldown: -1,
		Report: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			w.Reports = append(w.Reports, err)
		},
	})
	a.Resume(uses, nil)
	w.Nodes = append(w.Nodes, a)
	return a
}

// Claim claims and expects success.
func (w *World) Claim(a *allocator.Allocator, v4, v6 allocator.AddressRequest) (netip.Addr, netip.Addr) {
	w.Helper()
	a4, a6, err := a.Claim(w.Context(), w.Net, v4, v6)
	if err != nil {
		w.Fatalf("Claim: %v", err)
	}
	return a4, a6
}

// ClaimAside starts a claim and ignores its result.
func (w *World) ClaimAside(a *allocator.Allocator) {
	go func() { _, _, _ = a.Claim(w.Context(), w.Net, Dynamic(), None()) }()
}

// Publish creates the DanmEp of an attachment and calls MarkPublished.
func (w *World) Publish(a *allocator.Allocator, node string, a4, a6 netip.Addr) {
	w.Store.AddEndpoint(w.Net.Ref, w.Endpoint(node, a4, a6))
	a.MarkPublished(w.Key(), w.Endpoint(node, a4, a6).Name, a4, a6)
}

// Endpoint returns the DanmEp of an attachment.
func (w *World) Endpoint(node string, a4, a6 netip.Addr) status.Endpoint {
	return status.Endpoint{
		Namespace: "ns", Name: "ep-" + node + "-" + a4.String() + "-" + a6.String(),
		NetworkUID: w.Net.UID, Node: node, V4: a4, V6: a6,
	}
}

// Release releases an attachment: ReturnToEntry, deletion of the DanmEp, Free.
func (w *World) Release(a *allocator.Allocator, node string, a4, a6 netip.Addr) {
	w.Helper()
	if err := a.ReturnToEntry(w.Context(), w.Key(), "", a4, a6); err != nil {
		w.Fatal(err)
	}
	ep := w.Endpoint(node, a4, a6)
	w.Store.RemoveEndpoint(ep.Namespace, ep.Name)
	if err := a.Free(w.Context(), w.Key(), "", a4, a6); err != nil {
		w.Fatal(err)
	}
}

// Key returns the network's key.
func (w *World) Key() network.Key { return network.KeyOf(w.Net) }

// RemoveFinalizer removes the finalizer as the controller does for a network in deletion, over
// a store that may fail.
func (w *World) RemoveFinalizer(store allocator.Store) error {
	_, err := gc.NewCollector(store, gc.Config{}).RemoveFinalizer(w.Context(), w.Key())
	return err
}

// Idle waits until all timers that are due within a minute have fired.
func (w *World) Idle() {
	time.Sleep(time.Minute)
	synctest.Wait()
}

// Bits returns the addresses in use.
func (w *World) Bits() []string {
	w.Helper()
	var out []string
	ipam := w.IPAM()
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

// Entry returns a node's entry as "v4 v6", or "-" if there is none.
func (w *World) Entry(node string) string {
	h, ok := w.IPAM().Held[node]
	if !ok {
		return "-"
	}
	return h.V4 + " " + h.V6
}

// IPAM returns the network's status.ipam, which is empty if the network has none.
func (w *World) IPAM() *v1.IPAMStatus {
	o := w.Store.Object(w.Net.Ref)
	if o == nil || o.IPAM == nil {
		return &v1.IPAMStatus{}
	}
	return o.IPAM
}

// Script has the faults for the next requests by method, in order. Requests after that
// succeed. It records the methods called.
type Script struct {
	mu     sync.Mutex
	faults map[ipamtest.Op][]ipamtest.Fault
	ops    []string
}

// Next returns the fault of the next request. It is for ipamtest.Faulty.
func (s *Script) Next(op ipamtest.Op) ipamtest.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, string(op))
	if left := s.faults[op]; len(left) > 0 {
		s.faults[op] = left[1:]
		return left[0]
	}
	return ipamtest.Fault{}
}

// Set replaces the faults that are left for a method.
func (s *Script) Set(op ipamtest.Op, faults []ipamtest.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[op] = faults
}

// Called returns the methods called so far.
func (s *Script) Called() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ops)
}

// Scripted returns a store with faults on status updates, except for the first one.
func (w *World) Scripted(updates ...ipamtest.Fault) (*ipamtest.Faulty, *Script) {
	if w.Store.Object(w.Net.Ref).IPAM == nil {
		w.Store.SetIPAM(w.Net.Ref, &v1.IPAMStatus{})
	}
	s := &Script{faults: map[ipamtest.Op][]ipamtest.Fault{ipamtest.OpUpdate: updates}}
	return &ipamtest.Faulty{Store: w.Store, Next: s.Next}, s
}

// Flip flips the bits of addresses, and leaves the number of addresses as it is.
func (w *World) Flip(addrs ...netip.Addr) {
	w.Helper()
	w.Damaged = true
	damaged := w.IPAM().DeepCopy()
	for _, a := range addrs {
		b := damaged.V4
		if a.Is6() {
			b = damaged.V6
		}
		if err := ipamtest.Flip(b, a); err != nil {
			w.Fatal(err)
		}
	}
	w.Store.SetIPAM(w.Net.Ref, damaged)
}

// Forge is Flip by a hostile node, which also adjusts the number of addresses.
func (w *World) Forge(addrs ...netip.Addr) {
	w.Helper()
	w.Flip(addrs...)
	o := w.Store.Object(w.Net.Ref)
	for _, b := range []*v1.AddressBitmap{o.IPAM.V4, o.IPAM.V6} {
		bits, err := ipamtest.Bits(b)
		if err != nil {
			w.Fatal(err)
		}
		if b != nil {
			b.Allocated = int64(len(bits))
		}
	}
	if _, err := w.Store.Update(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

// ObserveRollback passes the current version of the network to an allocator's watch.
func (w *World) ObserveRollback(a *allocator.Allocator) {
	w.Helper()
	a.ObserveVersion(w.Key(), w.Store.Object(w.Net.Ref).ResourceVersion)
	time.Sleep(5 * time.Second)
	synctest.Wait()
}

// BeginRecovery starts a recovery, as the controller does, that awaits n1 and n2. The nodes
// report to it, as they do after a watch event.
func (w *World) BeginRecovery(nodes ...*allocator.Allocator) {
	w.Helper()
	s := gc.NewCollector(w.Store, gc.Config{})
	if awaited, err := s.Recover(w.Context(), w.Key(), []string{"n1", "n2"}, nil); err != nil || len(awaited) == 0 {
		w.Fatalf("Recover awaits %v, %v; want a recovery to begin", awaited, err)
	}
	for _, a := range nodes {
		a.ReportToRecovery(w.Key())
	}
	time.Sleep(time.Second) // reports that conflict are written again after a back-off
}

// Reported returns the nodes that have reported to the network's recovery.
func (w *World) Reported() []string {
	w.Helper()
	rec := w.IPAM().Recovering
	if rec == nil {
		w.Fatal("the network does not recover")
	}
	return rec.ReportedNodes
}

// Rollback returns a node's report of a rollback; nil means none.
func (w *World) Rollback(node string) *v1.RollbackReport { return w.IPAM().Held[node].Rollback }

// DropEntry removes a node's entry and leaves its bits set.
func (w *World) DropEntry(node string) {
	ipam := w.IPAM().DeepCopy()
	delete(ipam.Held, node)
	w.Store.SetIPAM(w.Net.Ref, ipam)
}

// Endpoints returns the DanmEps of the network.
func (w *World) Endpoints() []status.Endpoint {
	w.Helper()
	eps, err := w.Store.Endpoints(w.Context(), w.Net.Ref)
	if err != nil {
		w.Fatal(err)
	}
	return eps
}

// WarmNode starts an allocator with a warm pool and a cooldown. Zero fields of cfg get their
// defaults.
func (w *World) WarmNode(s allocator.Store, name string, cfg allocator.Config) *allocator.Allocator {
	cfg.Node, cfg.NodeUID = name, name+"-uid"
	cfg.Rand = func() float64 { return 0.5 }
	a := allocator.New(s, cfg)
	w.Nodes = append(w.Nodes, a)
	return a
}

// ClaimNow claims a dynamic IPv4 address and gives up after a millisecond.
func (w *World) ClaimNow(a *allocator.Allocator) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
	defer cancel()
	a4, _, err := a.Claim(ctx, w.Net, Dynamic(), None())
	return a4, err
}

// Watch passes the network's current version to an allocator periodically, as a watch does.
func (w *World) Watch(a *allocator.Allocator, every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if o := w.Store.Object(w.Net.Ref); o != nil {
				a.ObserveVersion(w.Key(), o.ResourceVersion)
			}
			time.Sleep(every)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// Quarantine claims an address and puts it into quarantine.
func (w *World) Quarantine(a *allocator.Allocator) netip.Addr {
	w.Helper()
	a4, _ := w.Claim(a, Dynamic(), None())
	if !a.Quarantine(w.Net, a4) {
		w.Fatalf("%v is refused", a4)
	}
	synctest.Wait()
	return a4
}

// Faults returns n equal faults.
func Faults(n int, kind ipamtest.Kind, delay time.Duration) []ipamtest.Fault {
	list := make([]ipamtest.Fault, n)
	for i := range list {
		list[i] = ipamtest.Fault{Kind: kind, Delay: delay}
	}
	return list
}

// Between is a store with hooks that run after a request was served and before its caller
// gets the response.
type Between struct {
	allocator.Store
	AfterGet, AfterList, AfterUpdate func()
}

// Get implements allocator.Store.
func (b *Between) Get(ctx context.Context, ref network.Ref) (*status.Object, error) {
	o, err := b.Store.Get(ctx, ref)
	if b.AfterGet != nil {
		b.AfterGet()
	}
	return o, err
}

// Update implements allocator.Store.
func (b *Between) Update(ctx context.Context, o *status.Object) (*status.Object, error) {
	o, err := b.Store.Update(ctx, o)
	if b.AfterUpdate != nil {
		b.AfterUpdate()
	}
	return o, err
}

// Endpoints implements allocator.Store.
func (b *Between) Endpoints(ctx context.Context, ref network.Ref) ([]status.Endpoint, error) {
	list, err := b.Store.Endpoints(ctx, ref)
	if b.AfterList != nil {
		b.AfterList()
	}
	return list, err
}

// Page returns the pages of a bitmap in which the first n addresses after the network address
// are set; n is 1 or 3.
func Page(n int) map[string]string {
	s := map[int]string{1: "Ag", 3: "Dg"}[n]
	for len(s) < 171 {
		s += "A"
	}
	return map[string]string{"0": s + "="}
}
