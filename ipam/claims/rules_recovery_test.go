// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/ipam/ipamtest"
)

// older is a network whose state went back, while n1 has an address that a DanmEp
// covers, one that it has claimed, and some in its hold.
type older struct {
	*world
	n1                 *claims.Allocator
	published, claimed netip.Addr
}

func (o *older) endpointName() string { return o.endpoint("n1", o.published, no).Name }

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
			func(o *older) { o.store.SetIPAM(o.net.Ref, nil) },
		},
		"SmallerSeq": {
			"the object is as it was before this node's entry",
			func(o *older) {
				o.store.SetIPAM(o.net.Ref, &v1.IPAMStatus{V4: &v1.AddressBitmap{CIDR: "10.0.0.0/24"}})
			},
		},
		"SmallerVersion": {
			"the object has a version that is older than one seen before",
			func(o *older) { o.n1.Look(o.key(), "1000000") },
		},
		"MissingDanmEp": {
			"the DanmEps are as they were before this node's last",
			func(o *older) {
				ipam := o.ipam().DeepCopy()
				o.store.RemoveEndpoint("ns", o.endpointName())
				o.store.SetIPAM(o.net.Ref, ipam)
				o.n1.Missing(o.key(), o.endpointName(), o.published, no)
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
				w.damaged = true
				o := &older{world: w, n1: w.holder(w.store, "n1", claims.Config{})}
				o.published, _ = w.claim(o.n1, dynamic, none)
				o.claimed, _ = w.claim(o.n1, static("10.0.0.99"), none)
				w.publish(o.n1, "n1", o.published, no)
				w.idle()
				tc.goBack(o)
				o.n1.Look(w.key(), w.store.Object(w.net.Ref).ResourceVersion)
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
	if o.rollback("n1") == nil || o.ipam().Recovering != nil {
		o.Fatalf("%s: n1 reports %v, recovering is %+v; want a report, and no recovery yet", reason, o.rollback("n1"), o.ipam().Recovering)
	}
	for _, name := range []string{"n1", "n3"} {
		a := map[string]*claims.Allocator{"n1": o.n1}[name]
		if a == nil {
			a = o.node(name)
		}
		if a4, _, err := a.Claim(o.Context(), o.net, dynamic, none); !errors.Is(err, claims.ErrTryAgain) {
			o.Errorf("%s: %s got %v, %v while n1 reports a rollback", reason, name, a4, err)
		}
	}
	o.begins(o.n1)
	if rec := o.ipam().Recovering; rec == nil || !slices.Equal(rec.ReportedNodes, []string{"n1"}) || o.rollback("n1") != nil {
		o.Fatalf("%s: recovering is %+v, want n1 done and its report gone: %v", reason, rec, o.rollback("n1"))
	}
	if a4, _, err := o.n1.Claim(o.Context(), o.net, dynamic, none); !errors.Is(err, claims.ErrTryAgain) {
		o.Errorf("%s: got %v, %v while the network recovers", reason, a4, err)
	}
	for _, a := range []netip.Addr{o.published, o.claimed} {
		if !slices.Contains(o.bits(), a.String()) {
			o.Errorf("%s: bits %v lack %v", reason, o.bits(), a)
		}
	}
	if err := ipamtest.Covered(o.store.Object(o.net.Ref), o.endpoints()); err != nil {
		o.Errorf("%s: %v", reason, err)
	}
}

// recover ends the recovery when n2 has reported too.
func (o *older) recover(reason string) {
	o.Helper()
	s := claims.NewSteward(o.store, claims.StewardConfig{})
	nodes := []string{"n1", "n2"}
	if awaited, err := s.Recover(o.Context(), o.key(), nodes, nil); err != nil || !slices.Equal(awaited, []string{"n2"}) {
		o.Errorf("%s: Recover awaits %v, %v; want n2", reason, awaited, err)
	}
	if _, _, err := o.n1.Claim(o.Context(), o.net, dynamic, none); !errors.Is(err, claims.ErrTryAgain) {
		o.Errorf("%s: got %v before n2 has reported", reason, err)
	}
	o.node("n2").Reassert(o.key())
	synctest.Wait()
	if awaited, err := s.Recover(o.Context(), o.key(), nodes, nil); err != nil || awaited != nil || o.ipam().Recovering != nil {
		o.Fatalf("%s: Recover awaits %v, %v; recovering %+v", reason, awaited, err, o.ipam().Recovering)
	}
	for range 98 {
		if a4, _ := o.claim(o.n1, dynamic, none); a4 == o.published || a4 == o.claimed {
			o.Fatalf("%s: %v is in use and was handed out", reason, a4)
		}
	}
	time.Sleep(time.Minute)
}

// A recovery waits for every node but those that somebody leaves out.
func TestRecoverSkips(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.claim(w.node("n1"), dynamic, none)
		ipam := w.ipam().DeepCopy()
		ipam.Recovering = &v1.RecoveryStatus{ReportedNodes: []string{"n1"}}
		w.store.SetIPAM(w.net.Ref, ipam)
		s := claims.NewSteward(w.store, claims.StewardConfig{})
		nodes := []string{"n1", "n2", "n3"}
		for _, step := range []struct{ skip, want []string }{
			{nil, []string{"n2", "n3"}}, {[]string{"n3"}, []string{"n2"}}, {[]string{"n2", "n3"}, nil},
		} {
			got, err := s.Recover(w.Context(), w.key(), nodes, step.skip)
			if err != nil || !slices.Equal(got, step.want) || (w.ipam().Recovering == nil) != (step.want == nil) {
				w.Errorf("without %v: awaited %v, %v; want %v; recovering %+v", step.skip, got, err, step.want, w.ipam().Recovering)
			}
		}
	})
}

// The holds of a Node that is gone are freed; not those of one that is back under
// its name, and not what a DanmEp covers.
func TestEvictFreesHolds(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		uid    string
		freed  int64
		entry  string
		bits   int
	}{
		"Gone": {"the machine is off", "n1-uid", 4, "-", 2},
		"Back": {"another machine has the name", "former-uid", 0, "10.0.0.2-10.0.0.5 ", 6},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
				n1 := w.holder(w.store, "n1", claims.Config{})
				a4, _ := w.claim(n1, dynamic, none)
				w.publish(n1, "n1", a4, no)
				time.Sleep(3 * time.Second)
				w.claim(w.node("n2"), dynamic, none)
				s := claims.NewSteward(w.store, claims.StewardConfig{})
				freed, err := s.Evict(w.Context(), w.key(), map[string]string{"n1": tc.uid})
				if err != nil || freed != tc.freed || w.entry("n1") != tc.entry || len(w.bits()) != tc.bits {
					w.Errorf("%s: Evict: %d, %v; entry %q, bits %v", tc.reason, freed, err, w.entry("n1"), w.bits())
				}
			})
		})
	}
}

// What the Steward is told of a former network is not done to the present one.
func TestAuditOfAFormerNetwork(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.damaged = true
		w.claim(w.node("n1"), dynamic, none)
		w.dropEntry("n1")
		s := claims.NewSteward(w.store, claims.StewardConfig{})
		former := claims.Key{Ref: w.net.Ref, UID: "former"}
		if got, err := s.Audit(w.Context(), former); !errors.Is(err, claims.ErrNotFound) {
			w.Errorf("Audit: %+v, %v, want ErrNotFound", got, err)
		}
		if len(w.bits()) != 1 {
			w.Errorf("bits %v", w.bits())
		}
	})
}

// A network that is in use and has no status is not empty, not even for a node that
// has never used it.
func TestDroppedStatusIsNotEmpty(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.damaged = true
		n1 := w.node("n1")
		used, _ := w.claim(n1, dynamic, none)
		w.store.SetIPAM(w.net.Ref, nil)
		n2 := w.node("n2")
		if a4, _, err := n2.Claim(w.Context(), w.net, dynamic, none); !errors.Is(err, claims.ErrTryAgain) {
			w.Errorf("n2 got %v, %v: n1 uses %v", a4, err, used)
		}
		w.begins(n1, n2)
		s := claims.NewSteward(w.store, claims.StewardConfig{})
		if awaited, err := s.Recover(w.Context(), w.key(), []string{"n1", "n2"}, nil); err != nil || awaited != nil {
			w.Fatalf("Recover awaits %v, %v", awaited, err)
		}
		if a4, _ := w.claim(n2, dynamic, none); a4 == used {
			w.Errorf("n2 got %v, which n1 uses", a4)
		}
	})
}

// What a node has of a former network it does not bring into the present one.
func TestFormerNetworkIsLeftAlone(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		former := claims.Key{Ref: w.net.Ref, UID: "former"}
		a := w.node("n1", claims.Use{Key: former, Owner: "ep", V4: addr("10.0.0.1"), Phase: claims.Claimed})
		if err := a.Settle(w.Context(), former); err != nil {
			w.Fatal(err)
		}
		if err := a.Return(w.Context(), former, "ep", addr("10.0.0.1"), no); err != nil {
			w.Fatal(err)
		}
		if w.store.Writes() != 0 {
			w.Errorf("bits %v, entry %q in a network that nobody has used", w.bits(), w.entry("n1"))
		}
	})
}
