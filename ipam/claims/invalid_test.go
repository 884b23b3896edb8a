// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
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
			inWorld(t, clusterNetwork("10.0.0.0/24", "fd00::/64"), func(w *world) {
				a := w.node("n1")
				a4, a6 := w.claim(a, dynamic, dynamic)
				w.publish(a, "n1", a4, a6)
				w.idle()
				w.store.Spoil(w.net.Ref, errSpec)
				if tc.restart {
					a.Close()
					a = w.node("n1", claims.Use{Key: w.key(), V4: a4, V6: a6, Phase: claims.Published})
				}
				if _, _, err := a.Claim(w.Context(), w.net, dynamic, none); !errors.Is(err, network.ErrInvalid) {
					w.Errorf("%s: Claim: got %v, want what is wrong with the spec", tc.reason, err)
				}
				if diff := cmp.Diff([]string{a4.String(), a6.String()}, w.bits()); diff != "" {
					w.Errorf("%s: bits beside a refused claim (-want +got):\n%s", tc.reason, diff)
				}
				w.release(a, "n1", a4, a6)
				w.idle()
				if got := w.bits(); len(got) > 0 || w.entry("n1") != "-" {
					w.Errorf("%s: left are bits %v and entry %q", tc.reason, got, w.entry("n1"))
				}
				w.store.Delete(w.net.Ref)
				if err := w.endDeletion(w.store); err != nil {
					w.Errorf("%s: EndDeletion: %v", tc.reason, err)
				}
				if o := w.store.Object(w.net.Ref); o != nil {
					w.Errorf("%s: a deleted network that nobody uses is still there: %+v", tc.reason, o)
				}
			})
		})
	}
}

// A network that was invalid from the start is refused without a write.
func TestInvalidNetworkIsLeftAlone(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		w.store.Spoil(w.net.Ref, errSpec)
		a := w.node("n1")
		if _, _, err := a.Claim(w.Context(), w.net, dynamic, none); !errors.Is(err, network.ErrInvalid) {
			w.Errorf("Claim: got %v, want what is wrong with the spec", err)
		}
		if o := w.store.Object(w.net.Ref); o.Protected {
			w.Error("it has the finalizer though nobody uses it")
		}
		w.net = w.store.Create(clusterNetwork("10.0.0.0/24", ""))
		if a4, _ := w.claim(a, dynamic, none); a4 != addr("10.0.0.1") {
			w.Errorf("got %v once it is valid, want its first", a4)
		}
	})
}
