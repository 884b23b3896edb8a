// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"
)

// errSpec is what is wrong with a network's spec.
var errSpec = fmt.Errorf("spec.Options.cidr: %w", network.ErrInvalid)

// A network may become invalid after its addresses were given out: by an update
// of the rules, or before they were there. What is in use comes back all the same.
func TestInvalidNetworkTakesAddressesBack(t *testing.T) {
	cases := map[string]struct {
		reason string
		// restart says that another life of the daemon has to do it.
		restart bool
	}{
		"SameLife":  {reason: "the allocator knows the address"},
		"NextStart": {reason: "it has it from the journal", restart: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", "fd00::/64"), func(w *testbed.World) {
				a := w.Node("n1")
				a4, a6 := w.Claim(a, testbed.Dynamic(), testbed.Dynamic())
				w.Publish(a, "n1", a4, a6)
				w.Idle()
				w.Store.Spoil(w.Net.Ref, errSpec)
				if tc.restart {
					a.Close()
					a = w.Node("n1", allocator.Use{Key: w.Key(), V4: a4, V6: a6, Phase: allocator.Published})
				}
				if _, _, err := a.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, network.ErrInvalid) {
					w.Errorf("%s: Claim: got %v, want what is wrong with the spec", tc.reason, err)
				}
				if diff := cmp.Diff([]string{a4.String(), a6.String()}, w.Bits()); diff != "" {
					w.Errorf("%s: bits beside a refused claim (-want +got):\n%s", tc.reason, diff)
				}
				w.Release(a, "n1", a4, a6)
				w.Idle()
				if got := w.Bits(); len(got) > 0 || w.Entry("n1") != "-" {
					w.Errorf("%s: left are bits %v and entry %q", tc.reason, got, w.Entry("n1"))
				}
				w.Store.Delete(w.Net.Ref)
				if err := w.RemoveFinalizer(w.Store); err != nil {
					w.Errorf("%s: EndDeletion: %v", tc.reason, err)
				}
				if o := w.Store.Object(w.Net.Ref); o != nil {
					w.Errorf("%s: a deleted network that nobody uses is still there: %+v", tc.reason, o)
				}
			})
		})
	}
}

// A network that was invalid from the start is refused without a write.
func TestInvalidNetworkIsLeftAlone(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Store.Spoil(w.Net.Ref, errSpec)
		a := w.Node("n1")
		if _, _, err := a.Claim(w.Context(), w.Net, testbed.Dynamic(), testbed.None()); !errors.Is(err, network.ErrInvalid) {
			w.Errorf("Claim: got %v, want what is wrong with the spec", err)
		}
		if o := w.Store.Object(w.Net.Ref); o.Protected {
			w.Error("it has the finalizer though nobody uses it")
		}
		w.Net = w.Store.Create(testbed.ClusterNetwork("10.0.0.0/24", ""))
		if a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None()); a4 != testbed.Addr("10.0.0.1") {
			w.Errorf("got %v once it is valid, want its first", a4)
		}
	})
}
