// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"testing"

	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
)

// A daemon that dies between Free and its journal has two released records with
// one address, when that was claimed again at once: whose DanmEp is there was
// the last, whatever the journal's order and whoever asks first.
func TestTwoReleasedOwnersOfOneAddress(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		journal []string // owners, in the journal's order
		first   string   // who asks first
		inEntry bool
		live    bool // the last owner's DanmEp exists
	}{
		"LastIsSecond":    {"the DanmEp alone covers the address", []string{"old", "last"}, "last", false, true},
		"LastIsFirst":     {"the journal is ordered by name", []string{"last", "old"}, "last", false, true},
		"OldAsksFirst":    {"the old owner must not free what the last's DanmEp covers", []string{"old", "last"}, "old", false, true},
		"OldFirstOfBoth":  {"the same, the other way round in the journal", []string{"last", "old"}, "old", false, true},
		"StillInTheEntry": {"both cover it", []string{"old", "last"}, "old", true, true},
		"EntryOnly":       {"it died after the DanmEp went: one of them clears the entry", []string{"old", "last"}, "old", true, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
				ipam := &v1.IPAMStatus{
					V4:   &v1.AddressBitmap{CIDR: "10.0.0.0/24", Cursor: "10.0.0.9", Pages: testbed.Page(1)},
					Held: map[string]v1.HeldAddresses{"n1": {UID: "n1-uid", Seq: 7}},
				}
				if tc.inEntry {
					ipam.Held["n1"] = v1.HeldAddresses{UID: "n1-uid", Seq: 7, V4: "10.0.0.1"}
				}
				w.Store.SetIPAM(w.Net.Ref, ipam)
				ep := w.Endpoint("n1", testbed.Addr("10.0.0.1"), testbed.NoAddr())
				ep.Name = "last"
				if tc.live {
					w.Store.AddEndpoint(w.Net.Ref, ep)
				}
				var uses []allocator.Use
				for _, owner := range tc.journal {
					uses = append(uses, allocator.Use{Key: w.Key(), Owner: owner, V4: ep.V4, Phase: allocator.Releasing})
				}
				a := w.Node("n1", uses...)
				order := []string{tc.first, "old"}
				if tc.first == "old" {
					order[1] = "last"
				}
				for _, owner := range order {
					if owner == "last" && tc.live {
						if err := a.ReturnToEntry(w.Context(), w.Key(), owner, ep.V4, testbed.NoAddr()); err != nil {
							w.Fatal(err)
						}
						w.Store.RemoveEndpoint(ep.Namespace, ep.Name)
					}
					if err := a.Free(w.Context(), w.Key(), owner, ep.V4, testbed.NoAddr()); err != nil {
						w.Fatal(err)
					}
				}
				w.Idle()
				if got := w.Bits(); len(got) > 0 {
					w.Errorf("%s: %v leaked", tc.reason, got)
				}
				again, _ := w.Claim(a, testbed.Static("10.0.0.1"), testbed.None())
				for _, owner := range order {
					if err := a.Free(w.Context(), w.Key(), owner, again, testbed.NoAddr()); err != nil {
						w.Fatal(err)
					}
				}
				if got := w.Bits(); len(got) != 1 {
					w.Errorf("%s: a repeated release freed the next owner's address", tc.reason)
				}
			})
		})
	}
}
