// SPDX-License-Identifier: Apache-2.0

package stability

import "time"

const (
	// DefaultWindow is how long reports must last where move.stable is not set.
	DefaultWindow = 10 * time.Second
	// MaxWindow is how long reports must last at most.
	MaxWindow = 10 * time.Minute
	// minWindow is how long they must last after the first roll-back where no time is set: a zero does not double.
	minWindow = time.Second
)

// Window returns how long reports must last after some roll-backs of a move: twice as long after each, because
// replicas failed after reports had said for that long that they are available.
func Window(stable time.Duration, rollbacks int32) time.Duration {
	stable = max(0, stable)
	for ; rollbacks > 0 && stable < MaxWindow; rollbacks-- {
		stable = max(minWindow, 2*stable)
	}
	return min(stable, MaxWindow)
}
