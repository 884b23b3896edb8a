// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/ipam/ipamtest"
	"github.com/patchbay-cni/patchbay/test/random"
)

// flip damages the bitmaps; status.allocated stays as it is.
func (w *world) flip(addrs ...netip.Addr) {
	w.Helper()
	w.damaged = true
	damaged := w.ipam().DeepCopy()
	for _, a := range addrs {
		b := damaged.V4
		if a.Is6() {
			b = damaged.V6
		}
		if err := ipamtest.Flip(b, a); err != nil {
			w.Fatal(err)
		}
	}
	w.store.SetIPAM(w.net.Ref, damaged)
}

// forge is flip by a hostile node, which makes status.allocated agree.
func (w *world) forge(addrs ...netip.Addr) {
	w.Helper()
	w.flip(addrs...)
	o := w.store.Object(w.net.Ref)
	o.Allocated = int64(len(w.bits()))
	if _, err := w.store.Update(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

// A claim never takes what another node's entry covers, though its bit was cleared,
// and sets the bit again.
func TestClaimSparesWhatEntriesCover(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		v4, v6 claims.Want
		err    error
	}{
		"Dynamic": {reason: "the only clear bits of a full pool are the other node's", v4: dynamic, v6: dynamic, err: claims.ErrExhausted},
		"Static":  {reason: "by name", v4: static("10.0.0.1"), err: claims.ErrTaken},
		"Static6": {reason: "by name", v6: static("fd00::1"), err: claims.ErrTaken},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/30", "fd00::/126"), func(w *world) {
				n2 := w.node("n2")
				for range 2 {
					w.claim(n2, dynamic, dynamic)
				}
				want := w.bits()
				w.forge(addr("10.0.0.1"), addr("fd00::1"))
				a4, a6, err := w.node("n1").Claim(w.Context(), w.net, tc.v4, tc.v6)
				if !errors.Is(err, tc.err) {
					w.Errorf("%s: got %v, %v, %v, want %v", tc.reason, a4, a6, err, tc.err)
				}
				if diff := cmp.Diff(want, w.bits()); diff != "" {
					w.Errorf("%s: bits, -want +got:\n%s", tc.reason, diff)
				}
				if len(w.reports) == 0 {
					w.Errorf("%s: the damage was not reported", tc.reason)
				}
			})
		})
	}
}

// A node sets the bits of its own Pods again, which only their DanmEps cover.
func TestClaimSparesWhatIsInUseHere(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/30", ""), func(w *world) {
		n1 := w.node("n1")
		for range 2 {
			a4, _ := w.claim(n1, dynamic, none)
			w.publish(n1, "n1", a4, no)
		}
		w.idle()
		w.forge(addr("10.0.0.1"))
		if a4, _, err := n1.Claim(w.Context(), w.net, dynamic, none); !errors.Is(err, claims.ErrExhausted) {
			w.Errorf("got %v, %v of a full pool", a4, err)
		}
		if diff := cmp.Diff([]string{"10.0.0.1", "10.0.0.2"}, w.bits()); diff != "" {
			w.Errorf("bits, -want +got:\n%s", diff)
		}
	})
}

// A bit that flips, anywhere and in either family, gives no address twice: the bitmap
// has not as many bits as status.allocated counts, so the claim asks for the DanmEps.
func TestFlippedBit(t *testing.T) {
	t.Parallel()
	dice := random.IntN(t)
	for range 30 {
		v6, flip, full := dice(2) == 1, dice(14)+1, dice(2) == 1
		inWorldOnce(t, clusterNetwork("10.0.0.0/28", "fd00::/124"), func(w *world) {
			n2, used := w.node("n2"), 14
			if !full {
				used = 1 + dice(13)
			}
			live := map[netip.Addr]bool{}
			for range used {
				a4, a6 := w.claim(n2, dynamic, dynamic)
				w.publish(n2, "n2", a4, a6)
				live[a4], live[a6] = true, true
			}
			w.idle()
			flipped := netip.AddrFrom4([4]byte{10, 0, 0, byte(flip)})
			if v6 {
				flipped = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(flip)})
			}
			w.flip(flipped)
			n1 := w.node("n1")
			for {
				a4, a6, err := n1.Claim(w.Context(), w.net, dynamic, dynamic)
				if errors.Is(err, claims.ErrExhausted) {
					break
				}
				if err != nil || live[a4] || live[a6] {
					w.Fatalf("%v flipped, %d in use: got %v, %v, %v", flipped, used, a4, a6, err)
				}
				live[a4], live[a6] = true, true
			}
			found, err := claims.NewSteward(w.store, claims.StewardConfig{}).Audit(w.Context(), w.key())
			if err != nil || found.Marked != 0 || found.Conflicts != nil {
				w.Errorf("%v flipped, %d in use: audit found %+v, %v", flipped, used, found, err)
			}
			if err := ipamtest.Covered(w.store.Object(w.net.Ref), w.endpoints()); err != nil {
				w.Errorf("%v flipped, %d in use: %v", flipped, used, err)
			}
		})
	}
}

// An audit makes any damage good, whoever covers the addresses.
func TestAuditMendsAnyDamage(t *testing.T) {
	t.Parallel()
	dice := random.IntN(t)
	for range 30 {
		inWorldOnce(t, clusterNetwork("10.0.0.0/26", "fd00::/122"), func(w *world) {
			for _, name := range []string{"n1", "n2", "n3"} {
				n := w.node(name)
				for range dice(20) {
					a4, a6 := w.claim(n, dynamic, dynamic)
					if dice(2) == 1 {
						w.publish(n, name, a4, a6)
					}
				}
			}
			w.idle()
			w.claim(w.node("n4"), dynamic, dynamic)
			want := w.bits()
			var flips []netip.Addr
			for i := range byte(62) {
				if dice(3) == 0 {
					flips = append(flips, netip.AddrFrom4([4]byte{10, 0, 0, i + 1}))
				}
				if dice(3) == 0 {
					flips = append(flips, netip.AddrFrom16([16]byte{0: 0xfd, 15: i + 1}))
				}
			}
			w.forge(flips...)
			loose, missing := 0, 0
			for _, a := range flips {
				if slices.Contains(want, a.String()) {
					missing++
				} else {
					loose++
				}
			}
			suspect, err := claims.Suspect(w.store.Object(w.net.Ref), w.endpoints())
			if err != nil || suspect != (len(flips) > 0) {
				w.Errorf("suspect %t, %v, with %d flips", suspect, err, len(flips))
			}
			found, err := claims.NewSteward(w.store, claims.StewardConfig{}).Audit(w.Context(), w.key())
			if err != nil || found.Drift != (claims.Drift{Freed: int64(loose), Marked: int64(missing)}) || found.Conflicts != nil {
				w.Errorf("audit found %+v, %v; want %d freed, %d marked", found, err, loose, missing)
			}
			if diff := cmp.Diff(want, w.bits()); diff != "" {
				w.Errorf("bits, -want +got:\n%s", diff)
			}
		})
	}
}

// What cannot be read keeps the audit from freeing, and not from setting bits.
func TestAuditMarksBesideAnUnreadableEntry(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		n1 := w.node("n1")
		a4, _ := w.claim(n1, dynamic, none)
		w.publish(n1, "n1", a4, no)
		w.idle()
		w.flip(a4, addr("10.0.0.9"))
		bad := w.ipam().DeepCopy()
		bad.Held = map[string]v1.HeldAddresses{"n2": {V4: "10.0.0.9-"}}
		w.store.SetIPAM(w.net.Ref, bad)
		found, err := claims.NewSteward(w.store, claims.StewardConfig{}).Audit(w.Context(), w.key())
		if !errors.Is(err, claims.ErrUnknownState) || found.Drift != (claims.Drift{Marked: 1}) {
			w.Errorf("audit found %+v, %v; want ErrUnknownState and one bit marked", found, err)
		}
		if diff := cmp.Diff([]string{"10.0.0.1", "10.0.0.9"}, w.bits()); diff != "" {
			w.Errorf("bits, -want +got:\n%s", diff)
		}
	})
}

// An address with two owners is found, with the owners' names.
func TestConflicts(t *testing.T) {
	t.Parallel()
	x := addr("10.0.0.1")
	held := func(text string) v1.HeldAddresses { return v1.HeldAddresses{UID: "u", Seq: 1, V4: text} }
	pod := func(name, node string) claims.Endpoint {
		return claims.Endpoint{Namespace: "ns", Name: "ep-" + name, Pod: name, PodUID: "uid-" + name, Node: node, V4: x}
	}
	owner := func(name, node string) claims.Owner {
		return claims.Owner{Namespace: "ns", Pod: name, PodUID: "uid-" + name, Endpoint: "ep-" + name, Node: node}
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
		endpoints  []claims.Endpoint
		recovering bool
		want       []claims.Owner
	}{
		"TwoPods":        {reason: "on two nodes", endpoints: []claims.Endpoint{pod("b", "n2"), pod("a", "n1")}, want: []claims.Owner{owner("a", "n1"), owner("b", "n2")}},
		"TwoPodsOfANode": {reason: "on one node", endpoints: []claims.Endpoint{pod("b", "n1"), pod("a", "n1")}, want: []claims.Owner{owner("a", "n1"), owner("b", "n1")}},
		"PodAndEntry":    {reason: "another node gives it to a Pod", held: map[string]v1.HeldAddresses{"n2": held("10.0.0.1")}, endpoints: []claims.Endpoint{pod("a", "n1")}, want: []claims.Owner{{Node: "n2"}, owner("a", "n1")}},
		"TwoEntries":     {reason: "two nodes give it to Pods", held: map[string]v1.HeldAddresses{"n1": held("10.0.0.1"), "n2": held("10.0.0.1")}, want: []claims.Owner{{Node: "n1"}, {Node: "n2"}}},
		"OwnEntry":       {reason: "each use and release has a moment when both cover it", held: map[string]v1.HeldAddresses{"n1": held("10.0.0.1")}, endpoints: []claims.Endpoint{pod("a", "n1")}},
		"Quarantine":     {reason: "what answered on the wire is no Pod of ours", held: map[string]v1.HeldAddresses{"!quarantine": held("10.0.0.1")}, endpoints: []claims.Endpoint{pod("a", "n1")}},
		"Moved":          {reason: "the controller moves it: two DanmEps of one interface", endpoints: []claims.Endpoint{moved, copied}},
		"SameID":         {reason: "another node says that its DanmEp is of the same interface", endpoints: []claims.Endpoint{moved, other}, want: []claims.Owner{owner("a", "n1"), owner("b", "n2")}},
		"FormerNetwork":  {reason: "a DanmEp of a network of that name that is gone", endpoints: []claims.Endpoint{former, pod("a", "n1")}},
		"Recovering":     {reason: "older state brings both back, and not all nodes have reported", recovering: true, endpoints: []claims.Endpoint{pod("b", "n2"), pod("a", "n1")}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
				w.damaged = true
				ipam := &v1.IPAMStatus{V4: &v1.AddressBitmap{CIDR: "10.0.0.0/24", Pages: page(1)}, Held: tc.held}
				if tc.recovering {
					ipam.Recovering = &v1.RecoveryStatus{}
				}
				w.store.SetIPAM(w.net.Ref, ipam)
				for _, ep := range tc.endpoints {
					w.store.AddEndpoint(w.net.Ref, ep)
				}
				found, err := claims.NewSteward(w.store, claims.StewardConfig{}).Audit(w.Context(), w.key())
				if err != nil {
					w.Fatal(err)
				}
				var got []claims.Owner
				for _, c := range found.Conflicts {
					if c.Addr != x {
						w.Errorf("%s: %v has owners %v", tc.reason, c.Addr, c.Owners)
					}
					got = c.Owners
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					w.Errorf("%s: owners, -want +got:\n%s", tc.reason, diff)
				}
				suspect, err := claims.Suspect(w.store.Object(w.net.Ref), w.endpoints())
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
		inWorldOnce(t, clusterNetwork("10.0.0.0/32", ""), func(w *world) {
			n1, n2 := w.node("n1"), w.node("n2")
			x, _ := w.claim(n1, dynamic, none)
			store := &sly{w.store, after, func() {
				w.release(n1, "n1", x, no)
				if y, _ := w.claim(n2, dynamic, none); y != x {
					w.Fatalf("%v did not change hands: n2 got %v", x, y)
				}
				w.publish(n2, "n2", x, no)
				w.idle()
			}}
			found, err := claims.NewSteward(store, claims.StewardConfig{}).Audit(w.Context(), w.key())
			if err != nil || found.Conflicts != nil || found.Drift != (claims.Drift{}) {
				w.Errorf("changed hands after request %d: audit found %+v, %v", after, found, err)
			}
		})
	}
}
