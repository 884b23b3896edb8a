// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// observer records its calls.
type observer struct {
	steps  map[Op]int
	rounds int
	events []LinkEvent
	last   *v1.NodeNetworkStatus
}

func (o *observer) ObserveStep(op Op, _ error) { o.steps[op]++ }
func (o *observer) ObserveReconcile(_ time.Duration, _ error, s *v1.NodeNetworkStatus) {
	o.rounds++
	o.last = s
}
func (o *observer) RecordEvent(n LinkEvent) { o.events = append(o.events, n) }

// Hundreds of networks that are created one after the other cause a few writes of the status, the
// last of which has all links. A NIC's new address, which other nodes need, is written at once.
func TestStatusWritesAreThrottled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const networks = 300
		w := newFakeNode()
		r := w.reconciler(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = r.Run(ctx) }()
		writes := func() int {
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.written)
		}
		start := time.Now()
		for i := range networks {
			w.change(func(w *fakeNode) { w.nets = append(w.nets, newNet(i+1, fmt.Sprintf("n%d", i), vlan(i+1))) })
			r.Trigger()
			time.Sleep(30 * time.Millisecond)
		}
		if n, took := writes(), time.Since(start); n > 10 {
			t.Errorf("%d writes in %v while networks were applied", n, took)
		}
		time.Sleep(minWriteInterval + networks*writeIntervalPerRow + time.Second)
		n := writes()
		if last := w.written[n-1]; len(last.Links) != networks {
			t.Errorf("the last write has %d links, want %d", len(last.Links), networks)
		}
		for range 2 { // the first could be written at once by chance, the second could not
			w.change(func(w *fakeNode) {
				nic := &w.state.NICs[0]
				nic.Addresses = append([]netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", 9+len(nic.Addresses)))}, nic.Addresses...)
			})
			r.Trigger()
			time.Sleep(2 * batchDelay)
		}
		if got := writes(); got != n+2 {
			t.Errorf("%d writes of two new addresses, want 2 at once", got-n)
		}
		time.Sleep(time.Hour)
		if got := writes(); got != n+2 {
			t.Errorf("%d writes in an hour in which nothing changed", got-n-2)
		}
	})
}

// Networks of other CNI plugins make the status larger, too.
func TestDelegatesSlowStatusWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const delegates = 300
		w := newFakeNode()
		cfg := w.reconciler(t).Config
		cfg.Delegates = installedPlugins{}
		for i := range delegates {
			w.nets = append(w.nets, &network.Network{Ref: ref(fmt.Sprint(i)), Type: "flannel", ID: fmt.Sprint(i)})
		}
		r := New(cfg)
		for i := range 30 {
			w.change(func(w *fakeNode) { w.state.NICs[0].Speed = i })
			if err := r.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(w.written); n != 1 || len(w.written[0].Delegates) != delegates {
			t.Errorf("%d writes of %d delegates in three seconds, want 1 of %d", n, len(w.written[0].Delegates), delegates)
		}
	})
}

// Values that other nodes do not use are not written at once: the speed of a NIC whose carrier
// flaps, and virtual functions that come and go with Pods.
func TestStatusWriteIsDeferred(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *fakeNode, i int){
		"Speed": func(w *fakeNode, i int) { w.state.NICs[0].Speed = i % 2 * 1000 },
		"VF": func(w *fakeNode, i int) {
			w.state.NICs = w.state.NICs[:4:4]
			if i%2 == 0 {
				w.state.NICs = append(w.state.NICs, NIC{Name: "ens9v3", VF: true})
			}
		},
		"Driver": func(w *fakeNode, i int) {
			w.state.NICs[0].TotalVFs, w.state.NICs[0].Functions = 1, []VirtualFunction{{Driver: fmt.Sprint(i)}}
		},
		"MAC": func(w *fakeNode, i int) { w.state.NICs[2].MAC = fmt.Sprint(i) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newFakeNode()
				r := w.reconciler(t)
				for i := range 20 {
					w.change(func(w *fakeNode) { change(w, i) })
					if err := r.Reconcile(t.Context()); err != nil {
						t.Fatal(err)
					}
					time.Sleep(50 * time.Millisecond)
				}
				if n := len(w.written); n > 1 || name == "VF" && len(w.written[0].NICs) != 4 {
					t.Errorf("%d writes within a second, the first of %+v", n, w.written[0].NICs)
				}
			})
		})
	}
}

// The kernel reports no change of a function's driver. It is written once, within resyncInterval.
func TestDriverChangeIsWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFakeNode()
		setDriver := func(driver string) {
			w.change(func(w *fakeNode) {
				w.state.NICs[0].TotalVFs, w.state.NICs[0].Functions = 1, []VirtualFunction{{Driver: driver}}
			})
		}
		setDriver("igbvf")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = w.reconciler(t).Run(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(w.written); n != 1 {
			t.Errorf("%d writes in an hour in which nothing changed, want 1", n)
		}
		setDriver("vfio-pci")
		time.Sleep(resyncInterval)
		synctest.Wait()
		n := len(w.written)
		last := w.written[n-1].NICs
		if got := last[slices.IndexFunc(last, func(nic v1.NIC) bool { return nic.SRIOV != nil })].SRIOV.Functions[0].Driver; n != 2 || got != "vfio-pci" {
			t.Errorf("%d writes, the last with driver %q, want 2 with vfio-pci", n, got)
		}
	})
}

// Virtual functions make the status larger, too.
func TestFunctionsSlowStatusWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFakeNode()
		w.state.NICs[0].TotalVFs, w.state.NICs[0].Functions = 256, make([]VirtualFunction, 256)
		r := w.reconciler(t)
		for i := range 30 {
			w.change(func(w *fakeNode) { w.state.NICs[0].Speed = i })
			if err := r.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(w.written); n != 1 {
			t.Errorf("%d writes of 256 functions in three seconds, want 1", n)
		}
	})
}

func TestObserver(t *testing.T) {
	t.Parallel()
	w := newFakeNode(newNet(1, "a", vlan(5)))
	o := &observer{steps: map[Op]int{}}
	r := New(Config{Node: "self", Version: "v1", KernelVersion: "6.1", Kernel: w, Firewall: fakeFirewall{w}, SourceGuard: fakeSourceGuard{w}, KubeClient: w, Pods: w, Log: testLog(t), Observer: o})
	for range 2 {
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.change(func(w *fakeNode) { w.state.Links = nil })
	}
	w.err["Networks"] = errBroken
	if err := r.Reconcile(t.Context()); err == nil {
		t.Error("got no error")
	}
	if o.rounds != 3 || o.steps[OpCreate] != 2 || len(o.events) != 1 || o.events[0].Reason != v1.ReasonLinkRestored {
		t.Errorf("got %+v, want three reconciliations, and two creations, of which one is a restoration", o)
	}
	if w.written[0].KernelVersion != "6.1" || w.written[0].Version != "v1" {
		t.Errorf("versions in %+v", w.written[0])
	}
}
