// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"testing"

	"pgregory.net/rapid"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// A condition must not flap: reading a pool again changes nothing, and a Pod that comes and goes in
// a pool of fifty or more changes the condition a few times at most.
func TestConditionsDoNotFlap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(50, 1<<20).Draw(t, "capacity")
		inUse := rapid.Int64Range(1, capacity).Draw(t, "inUse")
		reason := rapid.SampledFrom([]string{"", v1.ReasonAddressesSufficient, v1.ReasonAddressesNearlyExhausted, v1.ReasonAddressesExhausted}).Draw(t, "before")
		for i := range int64(20) {
			u := poolWith("IPv4", inUse-i%2, capacity)
			next := poolReason(u, reason)
			if again := poolReason(u, next); again != next {
				t.Fatalf("%+v is %s, and when read again %s", u, next, again)
			}
			if next != reason && i > 1 {
				t.Fatalf("%+v: still changes from %s to %s at step %d", u, reason, next, i)
			}
			reason = next
		}
	})
}
