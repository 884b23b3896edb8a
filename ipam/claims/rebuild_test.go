// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/ipam/ipamtest"
)

func TestUnknownStateIsRebuiltBeforeAClaim(t *testing.T) {
	t.Parallel()
	held := map[string]v1.HeldAddresses{"n2": {UID: "n2-uid", Seq: 3, V4: "10.0.0.3"}}
	zero := &v1.AddressBitmap{CIDR: "10.0.0.0/29"}
	cases := map[string]struct {
		reason string
		ipam   *v1.IPAMStatus
		want   string
	}{
		"Absent":    {"a backup tool dropped the status", nil, "10.0.0.3"},
		"NoBitmap":  {"the network got a subnet, or the bitmap was lost", &v1.IPAMStatus{Held: held}, "10.0.0.4"},
		"BadBitmap": {"a bitmap that cannot be read is no bitmap", &v1.IPAMStatus{Held: held, V4: &v1.AddressBitmap{CIDR: zero.CIDR, Pages: map[string]string{"0": "?"}}}, "10.0.0.4"},
		"BadSubnet": {"nor is one of no subnet", &v1.IPAMStatus{Held: held, V4: &v1.AddressBitmap{CIDR: "x"}}, "10.0.0.4"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/29", ""), func(w *world) {
				w.damaged = true
				w.store.AddEndpoint(w.net.Ref, w.endpoint("n2", addr("10.0.0.1"), no))
				danms := w.endpoint("n3", addr("10.0.0.2"), no)
				danms.NetworkUID = ""
				w.store.AddEndpoint(w.net.Ref, danms)
				former := w.endpoint("n4", addr("10.0.0.5"), no)
				former.NetworkUID = "former"
				w.store.AddEndpoint(w.net.Ref, former)
				w.store.SetIPAM(w.net.Ref, tc.ipam)
				got, _ := w.claim(w.node("n1"), dynamic, none)
				if got != addr(tc.want) {
					w.Errorf("%s: claimed %v, want %s", tc.reason, got, tc.want)
				}
				if err := ipamtest.Covered(w.store.Object(w.net.Ref), []claims.Endpoint{w.endpoint("n2", addr("10.0.0.1"), no), danms}); err != nil {
					w.Errorf("%s: %v", tc.reason, err)
				}
			})
		})
	}
}

func TestSubnetChange(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		n1, n2 := w.node("n1"), w.node("n2")
		a4, _ := w.claim(n1, dynamic, none)
		w.publish(n1, "n1", a4, no)
		b4, _ := w.claim(n2, dynamic, none)
		w.idle()

		if got := w.entry("n2"); got != b4.String()+" " {
			w.Errorf("entry of n2 %q", got)
		}
		former := w.net
		w.net = w.store.Create(clusterNetwork("10.9.0.0/24", ""))
		refused := func(why string) {
			w.Helper()
			_, _, err := n1.Claim(w.Context(), w.net, dynamic, none)
			if !errors.Is(err, claims.ErrSubnetInUse) || !strings.Contains(err.Error(), "10.0.0.0/24") {
				w.Errorf("%s: got %v, want ErrSubnetInUse and the former subnet", why, err)
			}
		}
		refused("an entry and a DanmEp")
		w.release(n1, "n1", a4, no)
		refused("an entry")
		w.publish(n2, "n2", b4, no)
		w.idle()
		refused("a DanmEp")
		w.release(n2, "n2", b4, no)

		if _, _, err := n1.Claim(w.Context(), former, dynamic, none); !errors.Is(err, claims.ErrTryAgain) {
			w.Errorf("got %v, want ErrTryAgain: the caller would give the new address the former mask and routes", err)
		}
		c4, _ := w.claim(n1, dynamic, none)
		if c4 != addr("10.9.0.1") {
			w.Errorf("got %v of the new subnet", c4)
		}
		if diff := cmp.Diff([]string{"10.9.0.1"}, w.bits()); diff != "" {
			w.Errorf("bits, -want +got:\n%s", diff)
		}
	})
}

// Any node can write which subnet the bits were written for. Another one than the spec's
// stops no claims while all that is in use lies in the spec's: the bitmap is built anew.
func TestOtherSubnetOfTheSameAddresses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		recorded v1.AddressBitmap
	}{
		"Forged":   {"a node that was taken over recorded what the network never had", v1.AddressBitmap{CIDR: "10.99.0.0/24"}},
		"Wide":     {"the same, with bits of others", v1.AddressBitmap{CIDR: "0.0.0.0/0", Pages: page(3)}},
		"Enlarged": {"a netadmin made the subnet larger", v1.AddressBitmap{CIDR: "10.0.0.0/30", Pages: page(1)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/29", ""), func(w *world) {
				w.damaged = true
				w.store.AddEndpoint(w.net.Ref, w.endpoint("n2", addr("10.0.0.1"), no))
				w.store.SetIPAM(w.net.Ref, &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{"n2": {UID: "n2-uid", Seq: 3, V4: "10.0.0.2"}}, V4: &tc.recorded})
				if got, _ := w.claim(w.node("n1"), dynamic, none); got != addr("10.0.0.3") {
					w.Errorf("%s: claimed %v, want what nobody has", tc.reason, got)
				}
				if diff := cmp.Diff([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, w.bits()); diff != "" {
					w.Errorf("%s: bits, -want +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestFamilyComesAndGoes(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		a := w.node("n1")
		a4, _ := w.claim(a, dynamic, none)
		w.store.Create(clusterNetwork("10.0.0.0/24", "fd00::/64"))
		if _, a6 := w.claim(a, none, dynamic); a6 != addr("fd00::1") {
			w.Errorf("got %v of the new family", a6)
		}
		w.store.Create(clusterNetwork("", "fd00::/64"))
		if _, _, err := a.Claim(w.Context(), w.net, dynamic, none); !errors.Is(err, claims.ErrSubnetInUse) {
			w.Errorf("got %v, want ErrSubnetInUse", err)
		}
		a.Discard(w.net, a4, no)
		w.idle()
		if w.ipam().V4 != nil || w.ipam().V6 == nil {
			w.Errorf("bitmaps %v, %v; want none of IPv4 when nothing of it is in use", w.ipam().V4, w.ipam().V6)
		}
	})
}

func TestCollect(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.damaged = true
		store, s := w.scripted()
		a := w.nodeOver(store, "n1")
		w.store.SetIPAM(w.net.Ref, &v1.IPAMStatus{
			V4: &v1.AddressBitmap{CIDR: "10.0.0.0/24", Pages: page(3)},
			Held: map[string]v1.HeldAddresses{
				"!quarantine": {V4: "10.0.0.3"},
			},
		})
		w.store.AddEndpoint(w.net.Ref, w.endpoint("n2", addr("10.0.0.1"), no))
		s.set(ipamtest.OpUpdate, faults(1, ipamtest.Conflict, 0))
		freed, err := a.Collect(w.Context(), w.key())
		if err != nil || freed != 1 {
			w.Errorf("Collect() = %d, %v; want 1", freed, err)
		}
		// Read, then list, then write, and all of it again after a conflict.
		want := []string{"Get", "Endpoints", "Update", "Get", "Endpoints", "Update"}
		if diff := cmp.Diff(want, s.called()); diff != "" {
			w.Errorf("requests, -want +got:\n%s", diff)
		}
		if diff := cmp.Diff([]string{"10.0.0.1", "10.0.0.3"}, w.bits()); diff != "" {
			w.Errorf("what a DanmEp and the quarantine cover: -want +got:\n%s", diff)
		}
	})
}

// A claim made between the list and the write of a collection changes the
// object, so the collection starts over and does not free it.
func TestCollectMeetsAClaim(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		n2 := w.node("n2")
		w.claim(n2, dynamic, none)
		store, s := w.scripted()
		met := false
		faulty := &ipamtest.Faulty{Store: store, Next: func(op ipamtest.Op) ipamtest.Fault {
			if op == ipamtest.OpUpdate && !met {
				met = true
				a4, _ := w.claim(n2, dynamic, none)
				w.publish(n2, "n2", a4, no)
			}
			return ipamtest.Fault{}
		}}
		stray(w, "10.0.0.9")
		freed, err := w.nodeOver(faulty, "n1").Collect(w.Context(), w.key())
		if err != nil || freed != 1 || !met {
			w.Errorf("Collect() = %d, %v; want the stray one", freed, err)
		}
		if diff := cmp.Diff([]string{"10.0.0.1", "10.0.0.2"}, w.bits()); diff != "" {
			w.Errorf("bits, -want +got:\n%s", diff)
		}
		if s.called()[len(s.called())-1] != "Update" {
			w.Errorf("requests %v", s.called())
		}
	})
}

// A collection asked for while a write is under way is made after it.
func TestCollectDuringAWrite(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.claim(w.node("n2"), dynamic, none)
		stray(w, "10.0.0.9")
		store, _ := w.scripted()
		a := w.nodeOver(slow(store), "n1")
		w.claimAside(a)
		time.Sleep(7 * time.Millisecond) // the read is over
		if freed, err := a.Collect(w.Context(), w.key()); freed != 1 || err != nil {
			w.Errorf("Collect() = %d, %v; want 1", freed, err)
		}
	})
}

// stray sets a bit that nobody covers.
func stray(w *world, a string) {
	w.damaged = true
	bits := w.ipam().DeepCopy()
	other := ipamtest.NewFake()
	n := other.Create(w.net)
	x := claims.New(other, claims.Config{Node: "x"})
	defer x.Close()
	for _, b := range append(w.bits(), a) {
		if _, _, err := x.Claim(w.Context(), n, static(b), none); err != nil {
			w.Fatal(err)
		}
	}
	bits.V4.Pages = other.Object(n.Ref).IPAM.V4.Pages
	w.store.SetIPAM(w.net.Ref, bits)
}

func TestCollectNeedsToReadAllEntries(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.damaged = true
		w.store.SetIPAM(w.net.Ref, &v1.IPAMStatus{
			V4:   &v1.AddressBitmap{CIDR: "10.0.0.0/24", Pages: page(1)},
			Held: map[string]v1.HeldAddresses{"n2": {V4: "10.0.0.1-"}},
		})
		_, err := w.node("n1").Collect(w.Context(), w.key())
		if !errors.Is(err, claims.ErrUnknownState) || !strings.Contains(err.Error(), `"n2"`) {
			w.Errorf("got %v, want the entry that cannot be read", err)
		}
		if len(w.bits()) != 1 {
			w.Errorf("bits %v", w.bits())
		}
	})
}

func TestOwnEntryUnreadable(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.damaged = true
		a := w.node("n1")
		a4, _ := w.claim(a, dynamic, none)
		bad := w.ipam()
		bad.Held["n1"] = v1.HeldAddresses{Seq: bad.Held["n1"].Seq, V4: "fd00::1"}
		w.store.SetIPAM(w.net.Ref, bad)
		b4, _ := w.claim(a, dynamic, none)
		if got := w.entry("n1"); got != a4.String()+"-"+b4.String()+" " {
			w.Errorf("entry %q, want what this node has in use", got)
		}
		if len(w.reports) == 0 {
			w.Error("nobody was told")
		}
	})
}
