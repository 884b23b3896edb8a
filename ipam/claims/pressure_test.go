// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
				ipam.Pressure = &raised
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
