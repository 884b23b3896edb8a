// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"slices"
	"testing"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"
)

// A recovery waits for every node but those that somebody leaves out.
func TestRecoverSkips(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		w.Claim(w.Node("n1"), testbed.Dynamic(), testbed.None())
		ipam := w.IPAM().DeepCopy()
		ipam.Recovering = &v1.RecoveryStatus{ReportedNodes: []string{"n1"}}
		w.Store.SetIPAM(w.Net.Ref, ipam)
		s := gc.NewCollector(w.Store, gc.Config{})
		nodes := []string{"n1", "n2", "n3"}
		for _, step := range []struct{ skip, want []string }{
			{nil, []string{"n2", "n3"}}, {[]string{"n3"}, []string{"n2"}}, {[]string{"n2", "n3"}, nil},
		} {
			got, err := s.Recover(w.Context(), w.Key(), nodes, step.skip)
			if err != nil || !slices.Equal(got, step.want) || (w.IPAM().Recovering == nil) != (step.want == nil) {
				w.Errorf("without %v: awaited %v, %v; want %v; recovering %+v", step.skip, got, err, step.want, w.IPAM().Recovering)
			}
		}
	})
}

// The holds of a Node that is gone are freed; not those of one that is back under
// its name, and not what a DanmEp covers.
func TestEvictFreesHolds(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		uid    string
		freed  int64
		entry  string
		bits   int
	}{
		"Gone": {"the machine is off", "n1-uid", 4, "-", 2},
		"Back": {"another machine has the name", "former-uid", 0, "10.0.0.2-10.0.0.5 ", 6},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
				n1 := w.WarmNode(w.Store, "n1", allocator.Config{})
				a4, _ := w.Claim(n1, testbed.Dynamic(), testbed.None())
				w.Publish(n1, "n1", a4, testbed.NoAddr())
				time.Sleep(3 * time.Second)
				w.Claim(w.Node("n2"), testbed.Dynamic(), testbed.None())
				s := gc.NewCollector(w.Store, gc.Config{})
				freed, err := s.FreeGoneNodes(w.Context(), w.Key(), map[string]string{"n1": tc.uid})
				if err != nil || freed != tc.freed || w.Entry("n1") != tc.entry || len(w.Bits()) != tc.bits {
					w.Errorf("%s: FreeGoneNodes: %d, %v; entry %q, bits %v", tc.reason, freed, err, w.Entry("n1"), w.Bits())
				}
			})
		})
	}
}
