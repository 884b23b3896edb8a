// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"
	"github.com/patchbay-cni/patchbay/ipam/status"
	"github.com/patchbay-cni/patchbay/test/random"
)

// An audit makes any damage good, whoever covers the addresses.
func TestAuditMendsAnyDamage(t *testing.T) {
	t.Parallel()
	dice := random.IntN(t)
	for range 30 {
		testbed.RunOnce(t, testbed.ClusterNetwork("10.0.0.0/26", "fd00::/122"), func(w *testbed.World) {
			for _, name := range []string{"n1", "n2", "n3"} {
				n := w.Node(name)
				for range dice(20) {
					a4, a6 := w.Claim(n, testbed.Dynamic(), testbed.Dynamic())
					if dice(2) == 1 {
						w.Publish(n, name, a4, a6)
					}
				}
			}
			w.Idle()
			w.Claim(w.Node("n4"), testbed.Dynamic(), testbed.Dynamic())
			want := w.Bits()
			var flips []netip.Addr
			for i := range byte(62) {
				if dice(3) == 0 {
					flips = append(flips, netip.AddrFrom4([4]byte{10, 0, 0, i + 1}))
				}
				if dice(3) == 0 {
					flips = append(flips, netip.AddrFrom16([16]byte{0: 0xfd, 15: i + 1}))
				}
			}
			w.Forge(flips...)
			loose, missing := 0, 0
			for _, a := range flips {
				if slices.Contains(want, a.String()) {
					missing++
				} else {
					loose++
				}
			}
			suspect, err := gc.NeedsRepair(w.Store.Object(w.Net.Ref), w.Endpoints())
			if err != nil || suspect != (len(flips) > 0) {
				w.Errorf("suspect %t, %v, with %d flips", suspect, err, len(flips))
			}
			found, err := gc.NewCollector(w.Store, gc.Config{}).RepairBitmap(w.Context(), w.Key())
			if err != nil || found.Drift != (gc.Drift{Freed: int64(loose), Marked: int64(missing)}) || found.Conflicts != nil {
				w.Errorf("audit found %+v, %v; want %d freed, %d marked", found, err, loose, missing)
			}
			if diff := cmp.Diff(want, w.Bits()); diff != "" {
				w.Errorf("bits, -want +got:\n%s", diff)
			}
		})
	}
}

// What cannot be read keeps the audit from freeing, and not from setting bits.
func TestAuditMarksBesideAnUnreadableEntry(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		n1 := w.Node("n1")
		a4, _ := w.Claim(n1, testbed.Dynamic(), testbed.None())
		w.Publish(n1, "n1", a4, testbed.NoAddr())
		w.Idle()
		w.Flip(a4, testbed.Addr("10.0.0.9"))
		bad := w.IPAM().DeepCopy()
		bad.Held = map[string]v1.HeldAddresses{"n2": {V4: "10.0.0.9-"}}
		w.Store.SetIPAM(w.Net.Ref, bad)
		found, err := gc.NewCollector(w.Store, gc.Config{}).RepairBitmap(w.Context(), w.Key())
		if !errors.Is(err, status.ErrUnknownState) || found.Drift != (gc.Drift{Marked: 1}) {
			w.Errorf("audit found %+v, %v; want ErrUnknownState and one bit marked", found, err)
		}
		if diff := cmp.Diff([]string{"10.0.0.1", "10.0.0.9"}, w.Bits()); diff != "" {
			w.Errorf("bits, -want +got:\n%s", diff)
		}
	})
}

// An address with two owners is found, with the owners' names.
func TestConflicts(t *testing.T) {
	t.Parallel()
	x := testbed.Addr("10.0.0.1")
	held := func(text string) v1.HeldAddresses { return v1.HeldAddresses{UID: "u", Seq: 1, V4: text} }
	pod := func(name, node string) status.Endpoint {
		return status.Endpoint{Namespace: "ns", Name: "ep-" + name, Pod: name, PodUID: "uid-" + name, Node: node, V4: x}
	}
	owner := func(name, node string) gc.Owner {
		return gc.Owner{Namespace: "ns", Pod: name, PodUID: "uid-" + name, Endpoint: "ep-" + name, Node: node}
	}
	former := pod("b", "n2")
	former.NetworkUID = "former"
	moved, other := pod("a", "n1"), pod("b", "n2")
	moved.ID, other.ID = "sandbox-eth1", "sandbox-eth1"
	copied := moved
	copied.Namespace, copied.Name = "patchbay-system", "moved-1"
	cases := map[string]struct {
		reason     string
		held       map[string]v1.HeldAddresses
		endpoints  []status.Endpoint
		recovering bool
		want       []gc.Owner
	}{
		"TwoPods":        {reason: "on two nodes", endpoints: []status.Endpoint{pod("b", "n2"), pod("a", "n1")}, want: []gc.Owner{owner("a", "n1"), owner("b", "n2")}},
		"TwoPodsOfANode": {reason: "on one node", endpoints: []status.Endpoint{pod("b", "n1"), pod("a", "n1")}, want: []gc.Owner{owner("a", "n1"), owner("b", "n1")}},
		"PodAndEntry":    {reason: "another node gives it to a Pod", held: map[string]v1.HeldAddresses{"n2": held("10.0.0.1")}, endpoints: []status.Endpoint{pod("a", "n1")}, want: []gc.Owner{{Node: "n2"}, owner("a", "n1")}},
		"TwoEntries":     {reason: "two nodes give it to Pods", held: map[string]v1.HeldAddresses{"n1": held("10.0.0.1"), "n2": held("10.0.0.1")}, want: []gc.Owner{{Node: "n1"}, {Node: "n2"}}},
		"OwnEntry":       {reason: "each use and release has a moment when both cover it", held: map[string]v1.HeldAddresses{"n1": held("10.0.0.1")}, endpoints: []status.Endpoint{pod("a", "n1")}},
		"Quarantine":     {reason: "what answered on the wire is no Pod of ours", held: map[string]v1.HeldAddresses{"!quarantine": held("10.0.0.1")}, endpoints: []status.Endpoint{pod("a", "n1")}},
		"Moved":          {reason: "the controller moves it: two DanmEps of one interface", endpoints: []status.Endpoint{moved, copied}},
		"SameID":         {reason: "another node says that its DanmEp is of the same interface", endpoints: []status.Endpoint{moved, other}, want: []gc.Owner{owner("a", "n1"), owner("b", "n2")}},
		"FormerNetwork":  {reason: "a DanmEp of a network of that name that is gone", endpoints: []status.Endpoint{former, pod("a", "n1")}},
		"Recovering":     {reason: "older state brings both back, and not all nodes have reported", recovering: true, endpoints: []status.Endpoint{pod("b", "n2"), pod("a", "n1")}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
				w.Damaged = true
				ipam := &v1.IPAMStatus{V4: &v1.AddressBitmap{CIDR: "10.0.0.0/24", Pages: testbed.Page(1)}, Held: tc.held}
				if tc.recovering {
					ipam.Recovering = &v1.RecoveryStatus{}
				}
				w.Store.SetIPAM(w.Net.Ref, ipam)
				for _, ep := range tc.endpoints {
					w.Store.AddEndpoint(w.Net.Ref, ep)
				}
				found, err := gc.NewCollector(w.Store, gc.Config{}).RepairBitmap(w.Context(), w.Key())
				if err != nil {
					w.Fatal(err)
				}
				var got []gc.Owner
				for _, c := range found.Conflicts {
					if c.Addr != x {
						w.Errorf("%s: %v has owners %v", tc.reason, c.Addr, c.Owners)
					}
					got = c.Owners
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					w.Errorf("%s: owners, -want +got:\n%s", tc.reason, diff)
				}
				suspect, err := gc.NeedsRepair(w.Store.Object(w.Net.Ref), w.Endpoints())
				if err != nil || suspect != (tc.want != nil) {
					w.Errorf("%s: suspect %t, %v", tc.reason, suspect, err)
				}
			})
		})
	}
}

// An address that changes hands while an audit reads has one owner at any time.
func TestHandoverIsNoConflict(t *testing.T) {
	t.Parallel()
	for _, after := range []int{1, 2, 3} { // so many requests of the audit
		testbed.RunOnce(t, testbed.ClusterNetwork("10.0.0.0/32", ""), func(w *testbed.World) {
			n1, n2 := w.Node("n1"), w.Node("n2")
			x, _ := w.Claim(n1, testbed.Dynamic(), testbed.None())
			store := &sly{w.Store, after, func() {
				w.Release(n1, "n1", x, testbed.NoAddr())
				if y, _ := w.Claim(n2, testbed.Dynamic(), testbed.None()); y != x {
					w.Fatalf("%v did not change hands: n2 got %v", x, y)
				}
				w.Publish(n2, "n2", x, testbed.NoAddr())
				w.Idle()
			}}
			found, err := gc.NewCollector(store, gc.Config{}).RepairBitmap(w.Context(), w.Key())
			if err != nil || found.Conflicts != nil || found.Drift != (gc.Drift{}) {
				w.Errorf("changed hands after request %d: audit found %+v, %v", after, found, err)
			}
		})
	}
}

// sly is a store where something happens after the n-th request.
type sly struct {
	allocator.Store
	n    int
	then func()
}

func (s *sly) count() {
	if s.n--; s.n == 0 {
		s.then()
	}
}

func (s *sly) Get(ctx context.Context, ref network.Ref) (*status.Object, error) {
	defer s.count()
	return s.Store.Get(ctx, ref)
}

func (s *sly) Endpoints(ctx context.Context, ref network.Ref) ([]status.Endpoint, error) {
	defer s.count()
	return s.Store.Endpoints(ctx, ref)
}

// Whatever comes between the requests of an audit, it frees nothing that somebody
// covers: the entry is read before the DanmEps, and the write is of that version.
func TestAuditMeetsANode(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		loose  bool
		after  int // so many requests of the audit
		then   func(w *testbed.World, a *allocator.Allocator)
		want   gc.Drift
		bits   []string
	}{
		"Published": {
			reason: "its entry was read, and the DanmEp is listed", after: 1,
			then: func(w *testbed.World, a *allocator.Allocator) {
				w.Publish(a, "n1", testbed.Addr("10.0.0.1"), testbed.NoAddr())
				time.Sleep(3 * time.Second)
			},
			bits: []string{"10.0.0.1"},
		},
		"Claimed": {
			reason: "a claim after the list makes the write fail", loose: true, after: 2,
			then: func(w *testbed.World, a *allocator.Allocator) { w.Claim(a, testbed.Dynamic(), testbed.None()) },
			want: gc.Drift{Freed: 1}, bits: []string{"10.0.0.1", "10.0.0.3"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
				a := w.Node("n1")
				w.Claim(a, testbed.Dynamic(), testbed.None())
				if tc.loose {
					w.Damaged = true
					w.Claim(w.Node("n2"), testbed.Dynamic(), testbed.None())
					w.DropEntry("n2")
				}
				s := gc.NewCollector(&sly{w.Store, tc.after, func() { tc.then(w, a) }}, gc.Config{})
				got, err := s.RepairBitmap(w.Context(), w.Key())
				if err != nil || got.Drift != tc.want || got.Conflicts != nil {
					w.Errorf("%s: Audit: %+v, %v; want %+v", tc.reason, got, err, tc.want)
				}
				if diff := cmp.Diff(tc.bits, w.Bits()); diff != "" {
					w.Errorf("%s: bits, -want +got:\n%s", tc.reason, diff)
				}
				if err := ipamtest.Covered(w.Store.Object(w.Net.Ref), w.Endpoints()); err != nil {
					w.Errorf("%s: %v", tc.reason, err)
				}
			})
		})
	}
}

// The garbage collector frees nothing of an object that is older than it was: it starts the
// recovery, so that its write does not hide that from the nodes.
func TestAuditOfAnOlderObject(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true
		w.Claim(w.Node("n1"), testbed.Dynamic(), testbed.None())
		w.DropEntry("n1")
		s := gc.NewCollector(w.Store, gc.Config{})
		s.ObserveVersion(w.Key(), "1000000")
		if got, err := s.RepairBitmap(w.Context(), w.Key()); !errors.Is(err, status.ErrTryAgain) {
			w.Errorf("Audit: %+v, %v, want ErrTryAgain", got, err)
		}
		if got := w.Reported(); got != nil || len(w.Bits()) != 1 {
			w.Errorf("%v have reported, bits %v", got, w.Bits())
		}
	})
}

// A request for a former network changes nothing in the present one.
func TestAuditOfAFormerNetwork(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true
		w.Claim(w.Node("n1"), testbed.Dynamic(), testbed.None())
		w.DropEntry("n1")
		s := gc.NewCollector(w.Store, gc.Config{})
		former := network.Key{Ref: w.Net.Ref, UID: "former"}
		if got, err := s.RepairBitmap(w.Context(), former); !errors.Is(err, status.ErrNotFound) {
			w.Errorf("Audit: %+v, %v, want ErrNotFound", got, err)
		}
		if len(w.Bits()) != 1 {
			w.Errorf("bits %v", w.Bits())
		}
	})
}
