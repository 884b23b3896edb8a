// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"
)

// The object keeps the time of its last pressure for good.
func TestPressureBeforeTheStart(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		age    time.Duration
		held   int
	}{
		"LongAgo": {"it was over before this daemon started: a restart costs nobody the hold", 24 * time.Hour, 4},
		"JustNow": {"somebody may still wait for what others hold", 10 * time.Second, 0},
		"Ahead":   {"the other node's clock may be fast", -10 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
				w.Claim(w.Node("n2"), testbed.Dynamic(), testbed.None())
				ipam := w.IPAM().DeepCopy()
				raised := metav1.NewMicroTime(time.Now().Add(-tc.age))
				ipam.ReclaimRequestTime = &raised
				w.Store.SetIPAM(w.Net.Ref, ipam)
				a := w.WarmNode(w.Store, "n1", allocator.Config{})
				w.Claim(a, testbed.Dynamic(), testbed.None())
				synctest.Wait()
				if got := a.Stats().Warm; got != tc.held {
					w.Errorf("%s: %d held, want %d", tc.reason, got, tc.held)
				}
			})
		})
	}
}

// What is in quarantine is given back by nobody: to wait for it would cost each Pod of
// a full network 8 s, and all nodes their holds.
func TestQuarantineIsNotWaitedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		want   allocator.AddressRequest
		err    error
		says   string
	}{
		"Exhausted": {"the pool is as full as it will ever be", testbed.Dynamic(), allocator.ErrExhausted, "delete Pods, or widen"},
		"Static":    {"no node has it", testbed.Static("10.0.0.1"), allocator.ErrTaken, "request another"},
	} {
		t.Run(name, func(t *testing.T) {
			testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/30", ""), func(w *testbed.World) {
				a := w.Node("n1")
				w.Claim(a, testbed.Static("10.0.0.2"), testbed.None())
				w.Claim(w.Node("n2"), testbed.Static("10.0.0.1"), testbed.None())
				ipam := w.IPAM().DeepCopy()
				delete(ipam.Held, "n2")
				ipam.Held["!quarantine"] = v1.HeldAddresses{V4: "10.0.0.1"}
				w.Store.SetIPAM(w.Net.Ref, ipam)
				begin := time.Now()
				_, _, err := a.Claim(w.Context(), w.Net, tc.want, testbed.None())
				if !errors.Is(err, tc.err) || !strings.Contains(err.Error(), tc.says) {
					w.Fatalf("%s: got %v, want %v with %q", tc.reason, err, tc.err, tc.says)
				}
				if took := time.Since(begin); took > time.Second || w.IPAM().ReclaimRequestTime != nil {
					w.Errorf("%s: took %v, pressure %v", tc.reason, took, w.IPAM().ReclaimRequestTime)
				}
			})
		})
	}
}
