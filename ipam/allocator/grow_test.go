// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// A subnet grows in use, and its addresses move to other bits: each address stays with its owner, and
// its release frees its own bit. The next claim continues after the last one.
func TestSubnetGrowsInUse(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason                     string
		was4, was6, is4, is6       string
		pod, starting, quarantined string // the addresses in use, in the order of their claims
		next                       string // the first claim in the wider subnet
	}{
		"IPv4":     {"Each bit moves by 64.", "10.0.0.64/26", "", "10.0.0.0/24", "", "10.0.0.65", "10.0.0.66", "10.0.0.67", "10.0.0.68"},
		"IPv4Same": {"The bits stay, because both subnets begin with the same address.", "10.0.0.0/26", "", "10.0.0.0/24", "", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"},
		"IPv4Page": {"The addresses get another page.", "10.0.9.0/24", "", "10.0.0.0/16", "", "10.0.9.1", "10.0.9.2", "10.0.9.3", "10.0.9.4"},
		"IPv6":     {"Each bit moves by 256.", "", "fd00::100/120", "", "fd00::/112", "fd00::101", "fd00::102", "fd00::103", "fd00::104"},
		"IPv6Huge": {"The page has a number beyond 64 bits.", "", "fd00:0:0:9::/120", "", "fd00::/32", "fd00:0:0:9::1", "fd00:0:0:9::2", "fd00:0:0:9::3", "fd00:0:0:9::4"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork(tc.was4, tc.was6), func(w *testbed.World) {
				ask4, ask6 := testbed.Dynamic(), testbed.None()
				if tc.was6 != "" {
					ask4, ask6 = ask6, ask4
				}
				claim := func(a *allocator.Allocator) (netip.Addr, netip.Addr) { return w.Claim(a, ask4, ask6) }
				n1, n2 := w.Node("n1"), w.Node("n2")
				pod4, pod6 := claim(n1)
				w.Publish(n1, "n1", pod4, pod6)
				starting4, starting6 := claim(n2)
				for _, a := range status.Valid(claim(n1)) {
					if !n1.Quarantine(w.Net, a) {
						w.Fatalf("%v is not quarantined", a)
					}
				}
				w.Idle()
				former := w.Net
				w.Net = w.Store.Create(testbed.ClusterNetwork(tc.is4, tc.is6))
				next4, next6 := claim(n1) // the node with the quarantine moves the bits
				bits := func(when string, want ...string) {
					w.Helper()
					slices.Sort(want)
					got := w.Bits()
					slices.Sort(got)
					if diff := cmp.Diff(want, got); diff != "" {
						w.Errorf("%s: bits %s, -want +got:\n%s", tc.reason, when, diff)
					}
				}
				bits("after the first claim", tc.pod, tc.starting, tc.quarantined, tc.next)
				if _, _, err := n2.Claim(w.Context(), former, ask4, ask6); !errors.Is(err, status.ErrTryAgain) {
					w.Errorf("%s: a claim with the former subnet: got %v, want ErrTryAgain: the Pod would get the former mask", tc.reason, err)
				}
				w.Release(n1, "n1", pod4, pod6)
				bits("after the release of the Pod", tc.starting, tc.quarantined, tc.next)
				n2.Discard(former, starting4, starting6)
				w.Idle()
				bits("after the release of the Pod that was starting", tc.quarantined, tc.next)
				if e := w.IPAM().Held["n1"]; e.QuarantinedV4+e.QuarantinedV6 != tc.quarantined {
					w.Errorf("%s: entry %+v, want %s in quarantine", tc.reason, e, tc.quarantined)
				}
				n1.Discard(w.Net, next4, next6)
				w.Idle()
				bits("at the end", tc.quarantined)
			})
		})
	}
}

// The wider subnet's bitmap has the addresses of a Pod whose DanmEp was deleted by force.
func TestSubnetGrowsWithoutDanmEp(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/26", ""), func(w *testbed.World) {
		w.Damaged = true
		n1 := w.Node("n1")
		a4, _ := w.Claim(n1, testbed.Dynamic(), testbed.None())
		w.Publish(n1, "n1", a4, testbed.NoAddr())
		w.Idle()
		for _, ep := range w.Endpoints() {
			w.Store.RemoveEndpoint(ep.Namespace, ep.Name)
		}
		w.Net = w.Store.Create(testbed.ClusterNetwork("10.0.0.0/24", ""))
		w.Claim(n1, testbed.Dynamic(), testbed.None())
		if bits := w.Bits(); !slices.Contains(bits, a4.String()) {
			w.Errorf("bits %s, want that of %v too, which would be on two interfaces of the node", bits, a4)
		}
	})
}
