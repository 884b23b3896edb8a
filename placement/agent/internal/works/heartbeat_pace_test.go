// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Each step of a move waits for a heartbeat of the clusters that it counts on.
func TestHeartbeatsAreFrequentWhileObjectsMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, last := newHeartbeatPace(), time.Now()
		expect := func(reason string, want time.Duration) {
			t.Helper()
			if !p.wait(t.Context(), last) {
				t.Fatalf("%s: the wait ended without a heartbeat", reason)
			}
			if got := time.Since(last); got != want {
				t.Errorf("%s: the heartbeat came after %s, want %s", reason, got, want)
			}
			last = time.Now()
		}
		expect("objects may be moving when the agent starts", movingInterval)
		time.Sleep(movingTime)
		last = time.Now()
		expect("nothing moves", heartbeatInterval)
		go func() {
			time.Sleep(5 * time.Second)
			p.noteOrder()
		}()
		expect("the order comes when the short interval is over already", 5*time.Second)
		expect("the move goes on", movingInterval)
		time.Sleep(movingTime)
		last = time.Now()
		expect("the last order is long ago", heartbeatInterval)
		ended, end := context.WithCancel(t.Context())
		end()
		if p.wait(ended, time.Now()) {
			t.Error("the context has ended: a heartbeat is due, want none")
		}
	})
}
