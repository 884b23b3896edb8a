// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/ipam/ipamtest"
)

func TestClaimWritesBitAndEntryAtOnce(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", "fd00::/64"), func(w *world) {
		store, s := w.scripted()
		a4, a6 := w.claim(w.nodeOver(store, "n1"), dynamic, dynamic)
		if a4 != addr("10.0.0.1") || a6 != addr("fd00::1") {
			w.Errorf("got %v and %v", a4, a6)
		}
		// The finalizer is there before the first claim; nobody's DanmEps are
		// known to a new network, so they are listed; one write for both families.
		if diff := cmp.Diff([]string{"Get", "Protect", "Endpoints", "Update"}, s.called()); diff != "" {
			w.Errorf("requests, -want +got:\n%s", diff)
		}
		o := w.store.Object(w.net.Ref)
		want := map[string]v1.HeldAddresses{"n1": {UID: "n1-uid", Seq: 1, V4: "10.0.0.1", V6: "fd00::1"}}
		if diff := cmp.Diff(want, o.IPAM.Held); diff != "" {
			w.Errorf("held, -want +got:\n%s", diff)
		}
		if !o.Protected || o.Allocated != 2 || o.Capacity != 1<<63-1 {
			w.Errorf("protected %v, allocated %d, capacity %d", o.Protected, o.Allocated, o.Capacity)
		}
		if o.IPAM.V4.Cursor != "10.0.0.2" {
			w.Errorf("cursor %s, want the address after the one handed out", o.IPAM.V4.Cursor)
		}
	})
}

func TestClaimWithoutAddressesKeepsAnEntry(t *testing.T) {
	inWorld(t, clusterNetwork("", ""), func(w *world) {
		a := w.node("n1")
		w.claim(a, none, none)
		w.claim(a, none, none)
		w.publish(a, "n1", no, no)
		w.idle()
		if err := a.Settle(w.Context(), w.key()); err != nil {
			w.Fatal(err)
		}
		if got := w.entry("n1"); got != " " {
			w.Errorf("entry %q, want an empty one while one DanmEp is missing", got)
		}
		a.Discard(w.net, no, no)
		w.idle()
		if got := w.entry("n1"); got != "-" {
			w.Errorf("entry %q, want none: one has its DanmEp, one is gone", got)
		}
	})
}

func TestClaimErrors(t *testing.T) {
	t.Parallel()
	ranged := clusterNetwork("10.0.0.0/24", "")
	ranged.V4.Start, ranged.V4.End = addr("10.0.0.10"), addr("10.0.0.11")
	dual := clusterNetwork("10.0.0.0/24", "fd00::/127")
	pool := clusterNetwork("10.0.0.0/24", "fd00::/64")
	pool.V4.Static = []network.AddrRange{{Start: addr("10.0.0.7"), End: addr("10.0.0.9")}}
	pool.V6.Static = []network.AddrRange{}
	cases := map[string]struct {
		reason  string
		net     *network.Network
		before  [][2]claims.Want
		v4, v6  claims.Want
		want    error
		message string
	}{
		"Exhausted": {
			reason: "the message says how many are in use and what to do",
			net:    ranged, before: [][2]claims.Want{{dynamic, none}, {dynamic, none}}, v4: dynamic,
			want:    claims.ErrExhausted,
			message: "network ClusterNetwork/net: claim IPv4 address: no free address: all 2 dynamic addresses of 10.0.0.0/24 are in use; delete Pods or enlarge spec.Options.allocation_pool or cidr",
		},
		"ExhaustedV6": {
			reason: "both families or none",
			net:    dual, before: [][2]claims.Want{{none, dynamic}, {none, dynamic}}, v4: dynamic, v6: dynamic,
			want: claims.ErrExhausted, message: "IPv6 address: no free address: all 2",
		},
		"TakenDynamic": {
			reason: "a static address that somebody got by chance",
			net:    ranged, before: [][2]claims.Want{{dynamic, none}}, v4: static("10.0.0.10"),
			want: claims.ErrTaken, message: "10.0.0.10: address is taken by a Pod that is starting or stopping on this node",
		},
		"TakenStatic": {
			reason: "two Pods with one address; the other family is not kept",
			net:    dual, before: [][2]claims.Want{{none, static("fd00::1")}}, v4: dynamic, v6: static("fd00::1"),
			want: claims.ErrTaken, message: "fd00::1",
		},
		"Outside": {
			reason: "the message names address and subnet",
			net:    ranged, v4: static("10.0.1.1"),
			want: claims.ErrOutside, message: "10.0.1.1: address is outside of the subnet 10.0.0.0/24",
		},
		"Broadcast": {
			reason: "an address that no host may have",
			net:    ranged, v4: static("10.0.0.255"), want: claims.ErrOutside, message: "broadcast",
		},
		"OutsideStaticPool": {
			reason: "a Pod that admission did not see, in the subnet and in no range",
			net:    pool, v4: static("10.0.0.10"), want: claims.ErrOutside, message: "10.0.0.10: address cannot be used in this network: it is outside spec.Options.static_pool",
		},
		"NoStaticAddresses": {
			reason: "an empty list has none; the other family is not kept",
			net:    pool, v4: static("10.0.0.9"), v6: static("fd00::9"), want: claims.ErrOutside, message: "fd00::9",
		},
		"WrongFamily": {reason: "an IPv6 address as ip", net: ranged, v4: static("fd00::1"), want: claims.ErrOutside, message: "fd00::1"},
		"NoSubnet":    {reason: "a network without IPv6", net: ranged, v6: dynamic, want: claims.ErrNoSubnet, message: "IPv6"},
		"NoSubnetForStatic": {
			reason: "a static address in a network without", net: clusterNetwork("", ""),
			v4: static("10.0.0.1"), want: claims.ErrNoSubnet, message: "IPv4",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, tc.net, func(w *world) {
				a := w.node("n1")
				for _, b := range tc.before {
					w.claim(a, b[0], b[1])
				}
				before := w.bits()
				_, _, err := a.Claim(w.Context(), w.net, tc.v4, tc.v6)
				if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.message) {
					w.Errorf("%s: got %v", tc.reason, err)
				}
				w.idle()
				if diff := cmp.Diff(before, w.bits()); diff != "" {
					w.Errorf("%s: something was left:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestTakenNamesTheNode(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		n1 := w.node("n1")
		w.claim(n1, static("10.0.0.7"), none)
		_, _, err := w.node("n2").Claim(w.Context(), w.net, static("10.0.0.7"), none)
		if !errors.Is(err, claims.ErrTaken) || !strings.Contains(err.Error(), `node "n1"`) {
			w.Errorf("got %v, want the node", err)
		}
		w.publish(n1, "n1", addr("10.0.0.7"), no)
		w.idle()
		_, _, err = w.node("n3").Claim(w.Context(), w.net, static("10.0.0.7"), none)
		if !errors.Is(err, claims.ErrTaken) || !strings.Contains(err.Error(), "kubectl get danmeps") {
			w.Errorf("got %v, want how to find the Pod", err)
		}
	})
}

func TestStaticClaimsGoFirst(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/29", ""), func(w *world) {
		store, _ := w.scripted()
		a := w.nodeOver(slow(store), "n1")
		wants := []claims.Want{dynamic, dynamic, dynamic, static("10.0.0.1"), static("10.0.0.2")}
		var wg sync.WaitGroup
		for _, want := range wants {
			wg.Go(func() {
				if _, _, err := a.Claim(w.Context(), w.net, want, none); err != nil {
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
	net := clusterNetwork("10.0.0.0/29", "")
	net.V4.Routes = []network.Route{{Dst: netip.MustParsePrefix("10.9.0.0/16"), Gateway: addr("10.0.0.1")}}
	inWorld(t, net, func(w *world) {
		a := claims.New(w.store, claims.Config{Node: "n1", Reserved: func(*network.Network) []netip.Addr {
			return []netip.Addr{addr("10.0.0.2"), addr("fd00::1")}
		}})
		w.nodes = append(w.nodes, a)
		for range 4 {
			w.claim(a, dynamic, none)
		}
		if diff := cmp.Diff([]string{"10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"}, w.bits()); diff != "" {
			w.Errorf("-want +got:\n%s", diff)
		}
		if _, _, err := a.Claim(w.Context(), w.net, dynamic, none); !errors.Is(err, claims.ErrExhausted) {
			w.Errorf("got %v, want ErrExhausted", err)
		}
		for _, reserved := range []string{"10.0.0.1", "10.0.0.2"} {
			if a4, _, err := a.Claim(w.Context(), w.net, static(reserved), none); !errors.Is(err, claims.ErrOutside) {
				w.Errorf("static %s, a gateway's or a node's: got %v, error %v, want ErrOutside", reserved, a4, err)
			}
		}
	})
}

// As in DANM, the pool bounds dynamic addresses only.
func TestStaticOutsideThePool(t *testing.T) {
	net := clusterNetwork("10.0.0.0/24", "")
	net.V4.Start, net.V4.End = addr("10.0.0.10"), addr("10.0.0.11")
	inWorld(t, net, func(w *world) {
		a := claims.New(w.store, claims.Config{Node: "n1"})
		w.nodes = append(w.nodes, a)
		for _, want := range []string{"10.0.0.9", "10.0.0.12", "10.0.0.254"} {
			if got, _, err := a.Claim(w.Context(), w.net, static(want), none); err != nil || got != addr(want) {
				w.Errorf("static %s: got %v (error: %v)", want, got, err)
			}
		}
	})
}

func TestClaimRefusals(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		spoil  func(*world)
		want   error
	}{
		"Deleting": {
			reason: "a network in deletion takes no new Pods",
			spoil: func(w *world) {
				w.claim(w.node("n0"), dynamic, none)
				w.store.Delete(w.net.Ref)
			},
			want: claims.ErrDeleting,
		},
		"Gone": {
			reason: "no such network",
			spoil:  func(w *world) { w.store.Delete(w.net.Ref) },
			want:   claims.ErrNotFound,
		},
		"Recreated": {
			reason: "the caller's cache is behind",
			spoil: func(w *world) {
				w.store.Delete(w.net.Ref)
				w.store.Create(clusterNetwork("10.0.0.0/24", ""))
			},
			want: claims.ErrTryAgain,
		},
		"Recovering": {
			reason: "nobody knows what is in use until every node has reported",
			spoil:  func(w *world) { w.store.SetIPAM(w.net.Ref, &v1.IPAMStatus{Recovering: &v1.RecoveryStatus{}}) },
			want:   claims.ErrTryAgain,
		},
		"UnreadableEntry": {
			reason: "a bitmap cannot be rebuilt past an entry that nobody can read",
			spoil: func(w *world) {
				w.damaged = true
				w.store.SetIPAM(w.net.Ref, &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{"n2": {V4: "10.0.0.0-10.255.255.255"}}})
			},
			want: claims.ErrUnknownState,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
				tc.spoil(w)
				_, _, err := w.node("n1").Claim(w.Context(), w.net, dynamic, none)
				if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), "ClusterNetwork/net") {
					w.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
				}
				if got := w.entry("n1"); got != "-" {
					w.Errorf("%s: entry %q is left", tc.reason, got)
				}
			})
		})
	}
}
