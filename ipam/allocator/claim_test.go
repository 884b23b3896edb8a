// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

func TestClaimWritesBitAndEntryAtOnce(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", "fd00::/64"), func(w *testbed.World) {
		store, s := w.Scripted()
		a4, a6 := w.Claim(w.NodeOver(store, "n1"), testbed.Dynamic(), testbed.Dynamic())
		if a4 != testbed.Addr("10.0.0.1") || a6 != testbed.Addr("fd00::1") {
			w.Errorf("got %v and %v", a4, a6)
		}
		// The finalizer is there before the first claim; no DanmEps are
		// known to a new network, so they are listed; one write for both families.
		if diff := cmp.Diff([]string{"Get", "Protect", "Endpoints", "Update"}, s.Called()); diff != "" {
			w.Errorf("requests, -want +got:\n%s", diff)
		}
		o := w.Store.Object(w.Net.Ref)
		want := map[string]v1.HeldAddresses{"n1": {UID: "n1-uid", Seq: 1, V4: "10.0.0.1", V6: "fd00::1"}}
		if diff := cmp.Diff(want, o.IPAM.Held); diff != "" {
			w.Errorf("held, -want +got:\n%s", diff)
		}
		if !o.Protected || o.IPAM.V4.Allocated != 1 || o.IPAM.V6.Allocated != 1 {
			w.Errorf("protected %v, allocated %d and %d", o.Protected, o.IPAM.V4.Allocated, o.IPAM.V6.Allocated)
		}
		if o.IPAM.V4.Cursor != "10.0.0.2" {
			w.Errorf("cursor %s, want the address after the one handed out", o.IPAM.V4.Cursor)
		}
	})
}

func TestClaimWithoutAddressesKeepsAnEntry(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("", ""), func(w *testbed.World) {
		a := w.Node("n1")
		w.Claim(a, testbed.None(), testbed.None())
		w.Claim(a, testbed.None(), testbed.None())
		w.Publish(a, "n1", testbed.NoAddr(), testbed.NoAddr())
		w.Idle()
		if err := a.ReconcileEntries(w.Context(), w.Key()); err != nil {
			w.Fatal(err)
		}
		if got := w.Entry("n1"); got != " " {
			w.Errorf("entry %q, want an empty one while one DanmEp is missing", got)
		}
		a.Discard(w.Net, testbed.NoAddr(), testbed.NoAddr())
		w.Idle()
		if got := w.Entry("n1"); got != "-" {
			w.Errorf("entry %q, want none: one has its DanmEp, one is gone", got)
		}
	})
}

func TestClaimErrors(t *testing.T) {
	t.Parallel()
	ranged := testbed.ClusterNetwork("10.0.0.0/24", "")
	ranged.V4.Start, ranged.V4.End = testbed.Addr("10.0.0.10"), testbed.Addr("10.0.0.11")
	dual := testbed.ClusterNetwork("10.0.0.0/24", "fd00::/127")
	pool := testbed.ClusterNetwork("10.0.0.0/24", "fd00::/64")
	pool.V4.Static = []network.AddrRange{{Start: testbed.Addr("10.0.0.7"), End: testbed.Addr("10.0.0.9")}}
	pool.V6.Static = []network.AddrRange{}
	cases := map[string]struct {
		reason  string
		net     *network.Network
		before  [][2]allocator.AddressRequest
		v4, v6  allocator.AddressRequest
		want    error
		message string
	}{
		"Exhausted": {
			reason: "the message says how many are in use and what to do",
			net:    ranged, before: [][2]allocator.AddressRequest{{testbed.Dynamic(), testbed.None()}, {testbed.Dynamic(), testbed.None()}}, v4: testbed.Dynamic(),
			want:    allocator.ErrExhausted,
			message: "network ClusterNetwork/net: claim IPv4 address: no free address: all 2 dynamic addresses of 10.0.0.0/24 are in use; delete Pods, or widen spec.Options.allocation_pool within cidr 10.0.0.0/24",
		},
		"ExhaustedV6": {
			reason: "both families or none",
			net:    dual, before: [][2]allocator.AddressRequest{{testbed.None(), testbed.Dynamic()}, {testbed.None(), testbed.Dynamic()}}, v4: testbed.Dynamic(), v6: testbed.Dynamic(),
			want: allocator.ErrExhausted, message: "IPv6 address: no free address: all 2",
		},
		"TakenDynamic": {
			reason: "a static address that another claim got as a dynamic one",
			net:    ranged, before: [][2]allocator.AddressRequest{{testbed.Dynamic(), testbed.None()}}, v4: testbed.Static("10.0.0.10"),
			want: allocator.ErrTaken, message: "10.0.0.10: address is taken by a Pod that is starting or stopping on this node",
		},
		"TakenStatic": {
			reason: "two Pods with one address; the other family is not kept",
			net:    dual, before: [][2]allocator.AddressRequest{{testbed.None(), testbed.Static("fd00::1")}}, v4: testbed.Dynamic(), v6: testbed.Static("fd00::1"),
			want: allocator.ErrTaken, message: "fd00::1",
		},
		"Outside": {
			reason: "the message names address and subnet",
			net:    ranged, v4: testbed.Static("10.0.1.1"),
			want: allocator.ErrOutside, message: "10.0.1.1: address is outside of the subnet 10.0.0.0/24",
		},
		"Broadcast": {
			reason: "an address that no host may have",
			net:    ranged, v4: testbed.Static("10.0.0.255"), want: allocator.ErrOutside, message: "broadcast",
		},
		"OutsideStaticPool": {
			reason: "a Pod that admission did not see, in the subnet and in no range",
			net:    pool, v4: testbed.Static("10.0.0.10"), want: allocator.ErrOutside, message: "10.0.0.10: address cannot be used in this network: must be in spec.Options.static_pool",
		},
		"NoStaticAddresses": {
			reason: "an empty list has none; the other family is not kept",
			net:    pool, v4: testbed.Static("10.0.0.9"), v6: testbed.Static("fd00::9"), want: allocator.ErrOutside, message: "fd00::9",
		},
		"WrongFamily": {reason: "an IPv6 address as ip", net: ranged, v4: testbed.Static("fd00::1"), want: allocator.ErrOutside, message: "fd00::1"},
		"NoSubnet":    {reason: "a network without IPv6", net: ranged, v6: testbed.Dynamic(), want: allocator.ErrNoSubnet, message: "IPv6"},
		"NoSubnetForStatic": {
			reason: "a static address in a network without", net: testbed.ClusterNetwork("", ""),
			v4: testbed.Static("10.0.0.1"), want: allocator.ErrNoSubnet, message: "IPv4",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, tc.net, func(w *testbed.World) {
				a := w.Node("n1")
				for _, b := range tc.before {
					w.Claim(a, b[0], b[1])
				}
				before := w.Bits()
				_, _, err := a.Claim(w.Context(), w.Net, tc.v4, tc.v6)
				if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.message) {
					w.Errorf("%s: got %v", tc.reason, err)
				}
				w.Idle()
				if diff := cmp.Diff(before, w.Bits()); diff != "" {
					w.Errorf("%s: something was left:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestTakenNamesTheNode(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		n1 := w.Node("n1")
		w.Claim(n1, testbed.Static("10.0.0.7"), testbed.None())
		_, _, err := w.Node("n2").Claim(w.Context(), w.Net, testbed.Static("10.0.0.7"), testbed.None())
		if !errors.Is(err, allocator.ErrTaken) || !strings.Contains(err.Error(), `node "n1"`) {
			w.Errorf("got %v, want the node", err)
		}
		w.Publish(n1, "n1", testbed.Addr("10.0.0.7"), testbed.NoAddr())
		w.Idle()
		_, _, err = w.Node("n3").Claim(w.Context(), w.Net, testbed.Static("10.0.0.7"), testbed.None())
		if !errors.Is(err, allocator.ErrTaken) || !strings.HasSuffix(err.Error(), "claim static address 10.0.0.7: address is taken by a Pod: find it with `kubectl get danmeps -A -o wide | grep -w 10.0.0.7`, and delete it, or request another address") {
			w.Errorf("got %v, want how to find the Pod", err)
		}
	})
}

func TestStaticClaimsGoFirst(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/29", ""), func(w *testbed.World) {
		store, _ := w.Scripted()
		a := w.NodeOver(slow(store), "n1")
		wants := []allocator.AddressRequest{testbed.Dynamic(), testbed.Dynamic(), testbed.Dynamic(), testbed.Static("10.0.0.1"), testbed.Static("10.0.0.2")}
		var wg sync.WaitGroup
		for _, want := range wants {
			wg.Go(func() {
				if _, _, err := a.Claim(w.Context(), w.Net, want, testbed.None()); err != nil {
					w.Errorf("%+v: %v", want, err)
				}
			})
		}
		wg.Wait()
	})
}

// slow makes each request take 5 ms, so that claims made at once meet.
func slow(store *ipamtest.Faulty) *ipamtest.Faulty {
	next := store.Next
	store.Next = func(op ipamtest.Op) ipamtest.Fault {
		f := next(op)
		f.Delay += 5 * time.Millisecond
		return f
	}
	return store
}

func TestReservedAndGatewaysStayFree(t *testing.T) {
	net := testbed.ClusterNetwork("10.0.0.0/29", "")
	net.V4.Routes = []network.Route{{Dst: netip.MustParsePrefix("10.9.0.0/16"), Gateway: testbed.Addr("10.0.0.1")}}
	testbed.RunTest(t, net, func(w *testbed.World) {
		a := allocator.New(w.Store, allocator.Config{Node: "n1", Reserved: func(*network.Network) []netip.Addr {
			return []netip.Addr{testbed.Addr("10.0.0.2"), testbed.Addr("fd00::1")}
		}})
		w.Nodes = append(w.Nodes, a)
		for range 4 {
			w.Claim(a, testbed.Dynamic(), testbed.None())
		}
		if diff := cmp.Diff([]string{"10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"}, w.Bits()); diff != "" {
			w.Errorf("-want +got:\n%s", diff)
		}
		if _, _, err := a.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, allocator.ErrExhausted) {
			w.Errorf("got %v, want ErrExhausted", err)
		}
		for _, reserved := range []string{"10.0.0.1", "10.0.0.2"} {
			if a4, _, err := a.Claim(w.Context(), w.Net, testbed.Static(reserved), testbed.None()); !errors.Is(err, allocator.ErrOutside) {
				w.Errorf("static %s, a gateway's or a node's: got %v, error %v, want ErrOutside", reserved, a4, err)
			}
		}
	})
}

// As in DANM, the pool bounds dynamic addresses only.
func TestStaticOutsideThePool(t *testing.T) {
	net := testbed.ClusterNetwork("10.0.0.0/24", "")
	net.V4.Start, net.V4.End = testbed.Addr("10.0.0.10"), testbed.Addr("10.0.0.11")
	testbed.RunTest(t, net, func(w *testbed.World) {
		a := allocator.New(w.Store, allocator.Config{Node: "n1"})
		w.Nodes = append(w.Nodes, a)
		for _, want := range []string{"10.0.0.9", "10.0.0.12", "10.0.0.254"} {
			if got, _, err := a.Claim(w.Context(), w.Net, testbed.Static(want), testbed.None()); err != nil || got != testbed.Addr(want) {
				w.Errorf("static %s: got %v (error: %v)", want, got, err)
			}
		}
	})
}

func TestClaimRefusals(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		spoil  func(*testbed.World)
		want   error
	}{
		"Deleting": {
			reason: "a network in deletion takes no new Pods",
			spoil: func(w *testbed.World) {
				w.Claim(w.Node("n0"), testbed.Dynamic(), testbed.None())
				w.Store.Delete(w.Net.Ref)
			},
			want: allocator.ErrDeleting,
		},
		"Gone": {
			reason: "no such network",
			spoil:  func(w *testbed.World) { w.Store.Delete(w.Net.Ref) },
			want:   status.ErrNotFound,
		},
		"Recreated": {
			reason: "the caller's cache is behind",
			spoil: func(w *testbed.World) {
				w.Store.Delete(w.Net.Ref)
				w.Store.Create(testbed.ClusterNetwork("10.0.0.0/24", ""))
			},
			want: status.ErrTryAgain,
		},
		"Recovering": {
			reason: "what is in use is unknown until every node has reported",
			spoil:  func(w *testbed.World) { w.Store.SetIPAM(w.Net.Ref, &v1.IPAMStatus{Recovering: &v1.RecoveryStatus{}}) },
			want:   status.ErrTryAgain,
		},
		"UnreadableEntry": {
			reason: "a bitmap cannot be rebuilt past an unreadable entry",
			spoil: func(w *testbed.World) {
				w.Damaged = true
				w.Store.SetIPAM(w.Net.Ref, &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{"n2": {V4: "10.0.0.0-10.255.255.255"}}})
			},
			want: status.ErrUnknownState,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
				tc.spoil(w)
				_, _, err := w.Node("n1").Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None())
				if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), "ClusterNetwork/net") {
					w.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
				}
				if got := w.Entry("n1"); got != "-" {
					w.Errorf("%s: entry %q is left", tc.reason, got)
				}
			})
		})
	}
}
