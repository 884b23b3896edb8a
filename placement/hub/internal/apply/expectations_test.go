// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// A cache that stays behind, as after a restore, is not read fifty times a second.
func TestBackoff(t *testing.T) {
	t.Parallel()
	e, key := NewExpectations(nil, time.Now), kinds.Key{Namespace: "ns", Name: "web"}
	var all time.Duration
	for range 20 {
		all += e.Backoff(key)
	}
	if all < time.Minute {
		t.Errorf("20 pauses for a cache that stays behind: got %s, want more than a minute", all)
	}
	e.ResetBackoff(key)
	if got := e.Backoff(key); got != firstBackoff {
		t.Errorf("Backoff after ResetBackoff: got %s, want %s", got, firstBackoff)
	}
}
