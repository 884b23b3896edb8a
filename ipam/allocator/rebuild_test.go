// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"
	"github.com/patchbay-cni/patchbay/ipam/status"
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
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/29", ""), func(w *testbed.World) {
				w.Damaged = true
				w.Store.AddEndpoint(w.Net.Ref, w.Endpoint("n2", testbed.Addr("10.0.0.1"), testbed.NoAddr()))
				danms := w.Endpoint("n3", testbed.Addr("10.0.0.2"), testbed.NoAddr())
				danms.NetworkUID = ""
				w.Store.AddEndpoint(w.Net.Ref, danms)
				former := w.Endpoint("n4", testbed.Addr("10.0.0.5"), testbed.NoAddr())
				former.NetworkUID = "former"
				w.Store.AddEndpoint(w.Net.Ref, former)
				w.Store.SetIPAM(w.Net.Ref, tc.ipam)
				got, _ := w.Claim(w.Node("n1"), testbed.Dynamic(), testbed.None())
				if got != testbed.Addr(tc.want) {
					w.Errorf("%s: claimed %v, want %s", tc.reason, got, tc.want)
				}
				if err := ipamtest.Covered(w.Store.Object(w.Net.Ref), []status.Endpoint{w.Endpoint("n2", testbed.Addr("10.0.0.1"), testbed.NoAddr()), danms}); err != nil {
					w.Errorf("%s: %v", tc.reason, err)
				}
			})
		})
	}
}

func TestSubnetChange(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		n1, n2 := w.Node("n1"), w.Node("n2")
		a4, _ := w.Claim(n1, testbed.Dynamic(), testbed.None())
		w.Publish(n1, "n1", a4, testbed.NoAddr())
		b4, _ := w.Claim(n2, testbed.Dynamic(), testbed.None())
		w.Idle()

		if got := w.Entry("n2"); got != b4.String()+" " {
			w.Errorf("entry of n2 %q", got)
		}
		former := w.Net
		w.Net = w.Store.Create(testbed.ClusterNetwork("10.9.0.0/24", ""))
		refused := func(why string) {
			w.Helper()
			_, _, err := n1.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None())
			if !errors.Is(err, allocator.ErrSubnetInUse) || !strings.Contains(err.Error(), "10.0.0.0/24") {
				w.Errorf("%s: got %v, want ErrSubnetInUse and the former subnet", why, err)
			}
		}
		refused("an entry and a DanmEp")
		w.Release(n1, "n1", a4, testbed.NoAddr())
		refused("an entry")
		w.Publish(n2, "n2", b4, testbed.NoAddr())
		w.Idle()
		refused("a DanmEp")
		w.Release(n2, "n2", b4, testbed.NoAddr())

		if _, _, err := n1.Claim(w.Context(), former, testbed.Dynamic(), testbed.None()); !errors.Is(err, status.ErrTryAgain) {
			w.Errorf("got %v, want ErrTryAgain: the caller would give the new address the former mask and routes", err)
		}
		c4, _ := w.Claim(n1, testbed.Dynamic(), testbed.None())
		if c4 != testbed.Addr("10.9.0.1") {
			w.Errorf("got %v of the new subnet", c4)
		}
		if diff := cmp.Diff([]string{"10.9.0.1"}, w.Bits()); diff != "" {
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
		"Wide":     {"the same, with bits of others", v1.AddressBitmap{CIDR: "0.0.0.0/0", Pages: testbed.Page(3)}},
		"Enlarged": {"a netadmin made the subnet larger", v1.AddressBitmap{CIDR: "10.0.0.0/30", Pages: testbed.Page(1)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/29", ""), func(w *testbed.World) {
				w.Damaged = true
				w.Store.AddEndpoint(w.Net.Ref, w.Endpoint("n2", testbed.Addr("10.0.0.1"), testbed.NoAddr()))
				w.Store.SetIPAM(w.Net.Ref, &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{"n2": {UID: "n2-uid", Seq: 3, V4: "10.0.0.2"}}, V4: &tc.recorded})
				if got, _ := w.Claim(w.Node("n1"), testbed.Dynamic(), testbed.None()); got != testbed.Addr("10.0.0.3") {
					w.Errorf("%s: claimed %v, want what nobody has", tc.reason, got)
				}
				if diff := cmp.Diff([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, w.Bits()); diff != "" {
					w.Errorf("%s: bits, -want +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestFamilyComesAndGoes(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		a := w.Node("n1")
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Store.Create(testbed.ClusterNetwork("10.0.0.0/24", "fd00::/64"))
		if _, a6 := w.Claim(a, testbed.None(), testbed.Dynamic()); a6 != testbed.Addr("fd00::1") {
			w.Errorf("got %v of the new family", a6)
		}
		w.Store.Create(testbed.ClusterNetwork("", "fd00::/64"))
		if _, _, err := a.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, allocator.ErrSubnetInUse) {
			w.Errorf("got %v, want ErrSubnetInUse", err)
		}
		a.Discard(w.Net, a4, testbed.NoAddr())
		w.Idle()
		if w.IPAM().V4 != nil || w.IPAM().V6 == nil {
			w.Errorf("bitmaps %v, %v; want none of IPv4 when nothing of it is in use", w.IPAM().V4, w.IPAM().V6)
		}
	})
}

func TestCollect(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true
		store, s := w.Scripted()
		a := w.NodeOver(store, "n1")
		w.Store.SetIPAM(w.Net.Ref, &v1.IPAMStatus{
			V4: &v1.AddressBitmap{CIDR: "10.0.0.0/24", Pages: testbed.Page(3)},
			Held: map[string]v1.HeldAddresses{
				"!quarantine": {V4: "10.0.0.3"},
			},
		})
		w.Store.AddEndpoint(w.Net.Ref, w.Endpoint("n2", testbed.Addr("10.0.0.1"), testbed.NoAddr()))
		s.Set(ipamtest.OpUpdate, testbed.Faults(1, ipamtest.Conflict, 0))
		freed, err := a.CollectGarbage(w.Context(), w.Key())
		if err != nil || freed != 1 {
			w.Errorf("Collect() = %d, %v; want 1", freed, err)
		}
		// Read, then list, then write, and all of it again after a conflict.
		want := []string{"Get", "Endpoints", "Update", "Get", "Endpoints", "Update"}
		if diff := cmp.Diff(want, s.Called()); diff != "" {
			w.Errorf("requests, -want +got:\n%s", diff)
		}
		if diff := cmp.Diff([]string{"10.0.0.1", "10.0.0.3"}, w.Bits()); diff != "" {
			w.Errorf("what a DanmEp and the quarantine cover: -want +got:\n%s", diff)
		}
	})
}

// A claim made between the list and the write of a collection changes the
// object, so the collection starts over and does not free it.
func TestCollectMeetsAClaim(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		n2 := w.Node("n2")
		w.Claim(n2, testbed.Dynamic(), testbed.None())
		store, s := w.Scripted()
		met := false
		faulty := &ipamtest.Faulty{Store: store, Next: func(op ipamtest.Op) ipamtest.Fault {
			if op == ipamtest.OpUpdate && !met {
				met = true
				a4, _ := w.Claim(n2, testbed.Dynamic(), testbed.None())
				w.Publish(n2, "n2", a4, testbed.NoAddr())
			}
			return ipamtest.Fault{}
		}}
		stray(w, "10.0.0.9")
		freed, err := w.NodeOver(faulty, "n1").CollectGarbage(w.Context(), w.Key())
		if err != nil || freed != 1 || !met {
			w.Errorf("Collect() = %d, %v; want the stray one", freed, err)
		}
		if diff := cmp.Diff([]string{"10.0.0.1", "10.0.0.2"}, w.Bits()); diff != "" {
			w.Errorf("bits, -want +got:\n%s", diff)
		}
		if s.Called()[len(s.Called())-1] != "Update" {
			w.Errorf("requests %v", s.Called())
		}
	})
}

// A collection asked for while a write is under way is made after it.
func TestCollectDuringAWrite(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Claim(w.Node("n2"), testbed.Dynamic(), testbed.None())
		stray(w, "10.0.0.9")
		store, _ := w.Scripted()
		a := w.NodeOver(slow(store), "n1")
		w.ClaimAside(a)
		time.Sleep(7 * time.Millisecond) // the read is over
		if freed, err := a.CollectGarbage(w.Context(), w.Key()); freed != 1 || err != nil {
			w.Errorf("Collect() = %d, %v; want 1", freed, err)
		}
	})
}

// stray sets a bit that nobody covers.
func stray(w *testbed.World, a string) {
	w.Damaged = true
	bits := w.IPAM().DeepCopy()
	other := ipamtest.NewFake()
	n := other.Create(w.Net)
	x := allocator.New(other, allocator.Config{Node: "x"})
	defer x.Close()
	for _, b := range append(w.Bits(), a) {
		if _, _, err := x.Claim(w.Context(), n, testbed.Static(b), testbed.None()); err != nil {
			w.Fatal(err)
		}
	}
	bits.V4.Pages = other.Object(n.Ref).IPAM.V4.Pages
	w.Store.SetIPAM(w.Net.Ref, bits)
}

func TestCollectNeedsToReadAllEntries(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true
		w.Store.SetIPAM(w.Net.Ref, &v1.IPAMStatus{
			V4:   &v1.AddressBitmap{CIDR: "10.0.0.0/24", Pages: testbed.Page(1)},
			Held: map[string]v1.HeldAddresses{"n2": {V4: "10.0.0.1-"}},
		})
		_, err := w.Node("n1").CollectGarbage(w.Context(), w.Key())
		if !errors.Is(err, status.ErrUnknownState) || !strings.Contains(err.Error(), `"n2"`) {
			w.Errorf("got %v, want the entry that cannot be read", err)
		}
		if len(w.Bits()) != 1 {
			w.Errorf("bits %v", w.Bits())
		}
	})
}

func TestOwnEntryUnreadable(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Damaged = true
		a := w.Node("n1")
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		bad := w.IPAM()
		bad.Held["n1"] = v1.HeldAddresses{Seq: bad.Held["n1"].Seq, V4: "fd00::1"}
		w.Store.SetIPAM(w.Net.Ref, bad)
		b4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		if got := w.Entry("n1"); got != a4.String()+"-"+b4.String()+" " {
			w.Errorf("entry %q, want what this node has in use", got)
		}
		if len(w.Reports) == 0 {
			w.Error("nobody was told")
		}
	})
}
