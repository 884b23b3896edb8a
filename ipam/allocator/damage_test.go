// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"
	"github.com/patchbay-cni/patchbay/test/random"
)

// A claim never takes what another node's entry covers, though its bit was cleared,
// and sets the bit again.
func TestClaimSparesWhatEntriesCover(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		v4, v6 allocator.AddressRequest
		err    error
	}{
		"Dynamic": {reason: "the only clear bits of a full pool are the other node's", v4: testbed.Dynamic(), v6: testbed.Dynamic(), err: allocator.ErrExhausted},
		"Static":  {reason: "by name", v4: testbed.Static("10.0.0.1"), err: allocator.ErrTaken},
		"Static6": {reason: "by name", v6: testbed.Static("fd00::1"), err: allocator.ErrTaken},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/30", "fd00::/126"), func(w *testbed.World) {
				n2 := w.Node("n2")
				for range 2 {
					w.Claim(n2, testbed.Dynamic(), testbed.Dynamic())
				}
				want := w.Bits()
				w.Forge(testbed.Addr("10.0.0.1"), testbed.Addr("fd00::1"))
				a4, a6, err := w.Node("n1").Claim(w.Context(), w.Net, tc.v4, tc.v6)
				if !errors.Is(err, tc.err) {
					w.Errorf("%s: got %v, %v, %v, want %v", tc.reason, a4, a6, err, tc.err)
				}
				if diff := cmp.Diff(want, w.Bits()); diff != "" {
					w.Errorf("%s: bits, -want +got:\n%s", tc.reason, diff)
				}
				if len(w.Reports) == 0 {
					w.Errorf("%s: the damage was not reported", tc.reason)
				}
			})
		})
	}
}

// A node sets the bits of its own Pods again, which only their DanmEps cover.
func TestClaimSparesWhatIsInUseHere(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/30", ""), func(w *testbed.World) {
		n1 := w.Node("n1")
		for range 2 {
			a4, _ := w.Claim(n1, testbed.Dynamic(), testbed.None())
			w.Publish(n1, "n1", a4, testbed.NoAddr())
		}
		w.Idle()
		w.Forge(testbed.Addr("10.0.0.1"))
		if a4, _, err := n1.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, allocator.ErrExhausted) {
			w.Errorf("got %v, %v of a full pool", a4, err)
		}
		if diff := cmp.Diff([]string{"10.0.0.1", "10.0.0.2"}, w.Bits()); diff != "" {
			w.Errorf("bits, -want +got:\n%s", diff)
		}
	})
}

// A bit that flips, anywhere and in either family, gives no address twice: the bitmap
// has not as many bits as its field allocated counts, so the claim asks for the DanmEps.
func TestFlippedBit(t *testing.T) {
	t.Parallel()
	dice := random.IntN(t)
	for range 30 {
		v6, flip, full := dice(2) == 1, dice(14)+1, dice(2) == 1
		testbed.RunOnce(t, testbed.ClusterNetwork("10.0.0.0/28", "fd00::/124"), func(w *testbed.World) {
			n2, used := w.Node("n2"), 14
			if !full {
				used = 1 + dice(13)
			}
			live := map[netip.Addr]bool{}
			for range used {
				a4, a6 := w.Claim(n2, testbed.Dynamic(), testbed.Dynamic())
				w.Publish(n2, "n2", a4, a6)
				live[a4], live[a6] = true, true
			}
			w.Idle()
			flipped := netip.AddrFrom4([4]byte{10, 0, 0, byte(flip)})
			if v6 {
				flipped = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(flip)})
			}
			w.Flip(flipped)
			n1 := w.Node("n1")
			for {
				a4, a6, err := n1.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.Dynamic())
				if errors.Is(err, allocator.ErrExhausted) {
					break
				}
				if err != nil || live[a4] || live[a6] {
					w.Fatalf("%v flipped, %d in use: got %v, %v, %v", flipped, used, a4, a6, err)
				}
				live[a4], live[a6] = true, true
			}
			found, err := gc.NewCollector(w.Store, gc.Config{}).RepairBitmap(w.Context(), w.Key())
			if err != nil || found.Marked != 0 || found.Conflicts != nil {
				w.Errorf("%v flipped, %d in use: audit found %+v, %v", flipped, used, found, err)
			}
			if err := ipamtest.Covered(w.Store.Object(w.Net.Ref), w.Endpoints()); err != nil {
				w.Errorf("%v flipped, %d in use: %v", flipped, used, err)
			}
		})
	}
}
