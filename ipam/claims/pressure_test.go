// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
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
			inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
				w.claim(w.node("n2"), dynamic, none)
				ipam := w.ipam().DeepCopy()
				raised := metav1.NewMicroTime(time.Now().Add(-tc.age))
				ipam.ReclaimRequestTime = &raised
				w.store.SetIPAM(w.net.Ref, ipam)
				a := w.holder(w.store, "n1", claims.Config{})
				w.claim(a, dynamic, none)
				synctest.Wait()
				if got := a.Stats().Held; got != tc.held {
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
		want   claims.Want
		err    error
		says   string
	}{
		"Exhausted": {"the pool is as full as it will ever be", dynamic, claims.ErrExhausted, "delete Pods or enlarge"},
		"Static":    {"no node has it", static("10.0.0.1"), claims.ErrTaken, "ask for another"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, clusterNetwork("10.0.0.0/30", ""), func(w *world) {
				a := w.node("n1")
				w.claim(a, static("10.0.0.2"), none)
				w.claim(w.node("n2"), static("10.0.0.1"), none)
				ipam := w.ipam().DeepCopy()
				delete(ipam.Held, "n2")
				ipam.Held["!quarantine"] = v1.HeldAddresses{V4: "10.0.0.1"}
				w.store.SetIPAM(w.net.Ref, ipam)
				begin := time.Now()
				_, _, err := a.Claim(w.Context(), w.net, tc.want, none)
				if !errors.Is(err, tc.err) || !strings.Contains(err.Error(), tc.says) {
					w.Fatalf("%s: got %v, want %v with %q", tc.reason, err, tc.err, tc.says)
				}
				if took := time.Since(begin); took > time.Second || w.ipam().ReclaimRequestTime != nil {
					w.Errorf("%s: took %v, pressure %v", tc.reason, took, w.ipam().ReclaimRequestTime)
				}
			})
		})
	}
}
