// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// older is a network whose state went back, while n1 has an address that a DanmEp
// covers, one that it has claimed, and some in its hold.
type older struct {
	*testbed.World
	n1                 *allocator.Allocator
	published, claimed netip.Addr
}

func (o *older) endpointName() string { return o.Endpoint("n1", o.published, testbed.NoAddr()).Name }

// State that is older than it was stops all claims until every node has said what
// it has in use, and then nothing in use is handed out.
func TestOlderStateIsRecovered(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		goBack func(*older)
	}{
		"Dropped": {
			"a backup tool dropped the status of a network that is in use",
			func(o *older) { o.Store.SetIPAM(o.Net.Ref, nil) },
		},
		"SmallerSeq": {
			"the object is as it was before this node's entry",
			func(o *older) {
				o.Store.SetIPAM(o.Net.Ref, &v1.IPAMStatus{V4: &v1.AddressBitmap{CIDR: "10.0.0.0/24"}})
			},
		},
		"SmallerVersion": {
			"the object has a version that is older than one seen before",
			func(o *older) { o.n1.ObserveVersion(o.Key(), "1000000") },
		},
		"MissingDanmEp": {
			"the DanmEps are as they were before this node's last",
			func(o *older) {
				ipam := o.IPAM().DeepCopy()
				o.Store.RemoveEndpoint("ns", o.endpointName())
				o.Store.SetIPAM(o.Net.Ref, ipam)
				o.n1.DanmEpMissing(o.Key(), o.endpointName(), o.published, testbed.NoAddr())
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
				w.Damaged = true
				o := &older{World: w, n1: w.WarmNode(w.Store, "n1", allocator.Config{})}
				o.published, _ = w.Claim(o.n1, testbed.Dynamic(), testbed.None())
				o.claimed, _ = w.Claim(o.n1, testbed.Static("10.0.0.99"), testbed.None())
				w.Publish(o.n1, "n1", o.published, testbed.NoAddr())
				w.Idle()
				tc.goBack(o)
				o.n1.ObserveVersion(w.Key(), w.Store.Object(w.Net.Ref).ResourceVersion)
				synctest.Wait()
				o.reported(tc.reason)
				o.recover(tc.reason)
			})
		})
	}
}

// reported checks what n1 has done by itself.
func (o *older) reported(reason string) {
	o.Helper()
	if o.Rollback("n1") == nil || o.IPAM().Recovering != nil {
		o.Fatalf("%s: n1 reports %v, recovering is %+v; want a report, and no recovery yet", reason, o.Rollback("n1"), o.IPAM().Recovering)
	}
	for _, name := range []string{"n1", "n3"} {
		a := map[string]*allocator.Allocator{"n1": o.n1}[name]
		if a == nil {
			a = o.Node(name)
		}
		if a4, _, err := a.Claim(o.Context(), o.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, status.ErrTryAgain) {
			o.Errorf("%s: %s got %v, %v while n1 reports a rollback", reason, name, a4, err)
		}
	}
	o.BeginRecovery(o.n1)
	if rec := o.IPAM().Recovering; rec == nil || !slices.Equal(rec.ReportedNodes, []string{"n1"}) || o.Rollback("n1") != nil {
		o.Fatalf("%s: recovering is %+v, want n1 done and its report gone: %v", reason, rec, o.Rollback("n1"))
	}
	if a4, _, err := o.n1.Claim(o.Context(), o.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, status.ErrTryAgain) {
		o.Errorf("%s: got %v, %v while the network recovers", reason, a4, err)
	}
	for _, a := range []netip.Addr{o.published, o.claimed} {
		if !slices.Contains(o.Bits(), a.String()) {
			o.Errorf("%s: bits %v lack %v", reason, o.Bits(), a)
		}
	}
	if err := ipamtest.Covered(o.Store.Object(o.Net.Ref), o.Endpoints()); err != nil {
		o.Errorf("%s: %v", reason, err)
	}
}

// recover ends the recovery when n2 has reported too.
func (o *older) recover(reason string) {
	o.Helper()
	s := gc.NewCollector(o.Store, gc.Config{})
	nodes := []string{"n1", "n2"}
	if awaited, err := s.Recover(o.Context(), o.Key(), nodes, nil); err != nil || !slices.Equal(awaited, []string{"n2"}) {
		o.Errorf("%s: Recover awaits %v, %v; want n2", reason, awaited, err)
	}
	if _, _, err := o.n1.Claim(o.Context(), o.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, status.ErrTryAgain) {
		o.Errorf("%s: got %v before n2 has reported", reason, err)
	}
	o.Node("n2").ReportToRecovery(o.Key())
	synctest.Wait()
	if awaited, err := s.Recover(o.Context(), o.Key(), nodes, nil); err != nil || awaited != nil || o.IPAM().Recovering != nil {
		o.Fatalf("%s: Recover awaits %v, %v; recovering %+v", reason, awaited, err, o.IPAM().Recovering)
	}
	for range 98 {
		if a4, _ := o.Claim(o.n1, testbed.Dynamic(), testbed.None()); a4 == o.published || a4 == o.claimed {
			o.Fatalf("%s: %v is in use and was handed out", reason, a4)
		}
	}
	time.Sleep(time.Minute)
}

// A network that is in use and has no status is not empty, not even for a node that
// has never used it.
func TestDroppedStatusIsNotEmpty(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true
		n1 := w.Node("n1")
		used, _ := w.Claim(n1, testbed.Dynamic(), testbed.None())
		w.Store.SetIPAM(w.Net.Ref, nil)
		n2 := w.Node("n2")
		if a4, _, err := n2.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, status.ErrTryAgain) {
			w.Errorf("n2 got %v, %v: n1 uses %v", a4, err, used)
		}
		w.BeginRecovery(n1, n2)
		s := gc.NewCollector(w.Store, gc.Config{})
		if awaited, err := s.Recover(w.Context(), w.Key(), []string{"n1", "n2"}, nil); err != nil || awaited != nil {
			w.Fatalf("Recover awaits %v, %v", awaited, err)
		}
		if a4, _ := w.Claim(n2, testbed.Dynamic(), testbed.None()); a4 == used {
			w.Errorf("n2 got %v, which n1 uses", a4)
		}
	})
}

// What a node has of a former network it does not bring into the present one.
func TestFormerNetworkIsLeftAlone(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		former := network.Key{Ref: w.Net.Ref, UID: "former"}
		a := w.Node("n1", allocator.Use{Key: former, Owner: "ep", V4: testbed.Addr("10.0.0.1"), Phase: allocator.Claimed})
		if err := a.ReconcileEntries(w.Context(), former); err != nil {
			w.Fatal(err)
		}
		if err := a.ReturnToEntry(w.Context(), former, "ep", testbed.Addr("10.0.0.1"), testbed.NoAddr()); err != nil {
			w.Fatal(err)
		}
		if w.Store.Writes() != 0 {
			w.Errorf("bits %v, entry %q in a network that nobody has used", w.Bits(), w.Entry("n1"))
		}
	})
}
