// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"net/netip"
	"testing"

	"github.com/patchbay-cni/patchbay/internal/network"
)

func TestRefillRequests(t *testing.T) {
	t.Parallel()
	static := AddressRequest{Static: netip.MustParseAddr("10.0.0.7")}
	for name, tc := range map[string]struct {
		reason     string
		v4         AddressRequest
		generation int64
		want       bool
	}{
		"Dynamic":    {"Claims empty the pool.", AddressRequest{Dynamic: true}, 1, true},
		"None":       {"Pods without addresses use up nothing.", AddressRequest{}, 1, false},
		"Static":     {"The pool has no static addresses.", static, 1, false},
		"Generation": {"The pool is of another spec of the network.", AddressRequest{Dynamic: true}, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &Allocator{cfg: Config{Usable: func() bool { return true }}, refills: make(chan *networkAllocator, 1)}
			n := &networkAllocator{a: a}
			w := newWarmPool(&network.Network{Generation: 1, V4: &network.Subnet{}}, 4)
			w.low.Store(1)
			n.warm.Store(w)
			n.takeWarm(&network.Network{Generation: tc.generation}, tc.v4, AddressRequest{})
			if got := len(a.refills) == 1; got != tc.want {
				t.Errorf("%s refill requested: got %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}
