// SPDX-License-Identifier: Apache-2.0

package stability

import (
	"math"
	"testing"
	"time"
)

func TestWindow(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason    string
		stable    time.Duration
		rollbacks int32
		want      time.Duration
	}{
		{"a move that gives nothing back waits as users say", 10 * time.Second, 0, 10 * time.Second},
		{"what failed after this time must last for longer", 10 * time.Second, 1, 20 * time.Second},
		{"each failure doubles it", 10 * time.Second, 3, 80 * time.Second},
		{"a move must not wait for ever", 10 * time.Second, 7, MaxWindow},
		{"a stored number must not overflow", 10 * time.Second, math.MaxInt32, MaxWindow},
		{"users trust one report", 0, 0, 0},
		{"until replicas fail that one report said are available", 0, 1, time.Second},
		{"each failure doubles that", 0, 3, 4 * time.Second},
		{"a target that crashes after each start ends the alternation", 0, math.MaxInt32, MaxWindow},
		{"the schema rejects it, and an object may be older than the schema", time.Hour, 0, MaxWindow},
		{"the schema rejects it, and an object may be older than the schema", -time.Hour, 0, 0},
	} {
		if got := Window(tc.stable, tc.rollbacks); got != tc.want {
			t.Errorf("%s: %s after %d roll-backs is %s, want %s", tc.reason, tc.stable, tc.rollbacks, got, tc.want)
		}
	}
}
