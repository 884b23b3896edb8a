// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/gc"
)

// conditionWith returns a true condition that was written before.
func conditionWith(kind, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Reason: reason, Status: metav1.ConditionTrue, Message: "as before", ObservedGeneration: 1}
}

func TestDesiredConditions(t *testing.T) {
	t.Parallel()
	const pool, recovering = v1.ConditionAddressesAvailable, v1.ConditionRecovering
	enough, scarce := conditionWith(pool, v1.ReasonAddressesSufficient), conditionWith(pool, v1.ReasonAddressesNearlyExhausted)
	ready := conditionWith("Ready", "Valid")
	cases := map[string]struct {
		reason     string
		before     []metav1.Condition
		generation int64
		pools      []v1.PoolStatus
		waiting    recoveryProgress
		conflicts  conflictFindings
		// want is Type=Status Reason of each; message is part of the first.
		want    []string
		message string
		write   bool
	}{
		"New": {
			reason: "A network in use for the first time gets the condition.", generation: 1, pools: []v1.PoolStatus{poolWith("IPv4", 1, 100)},
			want: []string{"AddressesAvailable=True AddressesSufficient"}, message: "1 of 100", write: true,
		},
		"Claim": {
			reason: "A claim alone must not cause a write.", before: []metav1.Condition{ready, enough}, generation: 1, pools: []v1.PoolStatus{poolWith("IPv4", 50, 100)},
			want: []string{"AddressesAvailable=True AddressesSufficient"}, message: "as before",
		},
		"Scarce": {
			reason: "The message has the numbers and what to do.", before: []metav1.Condition{enough}, generation: 1, pools: []v1.PoolStatus{poolWith("IPv4", 95, 100)},
			want: []string{"AddressesAvailable=True AddressesNearlyExhausted"}, message: "95 of 100 IPv4 addresses are in use or pre-allocated by nodes (as of this change). Before it is exhausted, widen it", write: true,
		},
		"Exhausted": {
			reason: "New Pods wait for addresses.", before: []metav1.Condition{scarce}, generation: 1, pools: []v1.PoolStatus{poolWith("IPv4", 100, 100), poolWith("IPv6", 1, 1000)},
			want: []string{"AddressesAvailable=False AddressesExhausted"}, message: "100 of 100 IPv4 addresses are in use or pre-allocated by nodes: new Pods wait. Delete Pods, or widen it; kubelet retries", write: true,
		},
		"Widened": {
			reason: "A new spec changes the numbers.", before: []metav1.Condition{enough}, generation: 2, pools: []v1.PoolStatus{poolWith("IPv4", 1, 200)},
			want: []string{"AddressesAvailable=True AddressesSufficient"}, message: "1 of 200", write: true,
		},
		"Unreadable": {
			reason: "An unreadable bitmap changes no condition.", before: []metav1.Condition{scarce}, generation: 1,
			want: []string{"AddressesAvailable=True AddressesNearlyExhausted"},
		},
		"NoSubnet": {
			reason: "A network without addresses any more loses the condition.", before: []metav1.Condition{scarce}, generation: 2, write: true,
		},
		"Recovering": {
			reason: "The message names the awaited nodes.", before: []metav1.Condition{enough}, generation: 1, pools: []v1.PoolStatus{poolWith("IPv4", 1, 100)}, waiting: recoveryProgress{since: "noon", awaited: []string{"a", "b"}},
			want: []string{"AddressesAvailable=True AddressesSufficient", "Recovering=True AwaitingNodes"}, write: true,
		},
		"Recovered": {
			reason: "The condition is removed when the recovery is over.", before: []metav1.Condition{enough, conditionWith(recovering, v1.ReasonAwaitingNodes)},
			generation: 1, pools: []v1.PoolStatus{poolWith("IPv4", 1, 100)}, want: []string{"AddressesAvailable=True AddressesSufficient"}, write: true,
		},
		"Fewer": {
			reason: "The message must follow the list of awaited nodes.", before: []metav1.Condition{{Type: recovering, Status: metav1.ConditionTrue, Message: "at noon: a, b"}},
			waiting: recoveryProgress{since: "noon", awaited: []string{"b"}}, want: []string{"Recovering=True AwaitingNodes"}, message: "addresses that they use: b.", write: true,
		},
		"Again": {
			reason: "A second recovery that starts during the first one has another time.", before: []metav1.Condition{{Type: recovering, Status: metav1.ConditionTrue, Message: "at noon: a, b"}},
			waiting: recoveryProgress{since: "one", awaited: []string{"b"}}, want: []string{"Recovering=True AwaitingNodes"}, message: "at one", write: true,
		},
		"Deferred": {
			reason: "The message names the node that started too many recoveries.", generation: 1,
			waiting: recoveryProgress{deferred: map[string]metav1.MicroTime{"n7": metav1.NewMicroTime(time.Unix(0, 0))}},
			want:    []string{"RecoveryDeferred=True TooManyRollbacks"}, message: "n7 (until 1970-01-01T00:00:00Z)", write: true,
		},
		"Conflict": {
			reason: "The message names both Pods.", generation: 1, conflicts: conflictFindings{list: []gc.Conflict{conflictOf("10.0.0.1", "ns/a", "ns/b")}},
			want: []string{"AddressConflict=True DuplicateAddress"}, message: "10.0.0.1: Pod ns/a on node node-of-a and Pod ns/b on node node-of-b", write: true,
		},
		"ConflictStays": {
			reason: "Unchanged conflicts must not cause a write.", generation: 1, conflicts: conflictFindings{list: []gc.Conflict{conflictOf("10.0.0.1", "ns/a", "ns/b")}},
			before: []metav1.Condition{duplicate()}, want: []string{"AddressConflict=True DuplicateAddress"},
		},
		"ConflictUnknown": {
			reason: "A failed audit changes nothing.", generation: 1, conflicts: conflictFindings{unknown: true},
			before: []metav1.Condition{duplicate()}, want: []string{"AddressConflict=True DuplicateAddress"},
		},
		"ConflictOver": {
			reason: "The condition is removed with the last conflict.", generation: 1, before: []metav1.Condition{duplicate()}, write: true,
		},
		"Layer2": {reason: "A network without addresses has none of our conditions.", before: []metav1.Condition{ready}, generation: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := desiredConditions(tc.before, tc.generation, tc.pools, growthAdvice{"IPv4": "widen it"}, tc.waiting, tc.conflicts)
			var got []string
			for _, c := range after {
				got = append(got, c.Type+"="+string(c.Status)+" "+c.Reason)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if tc.message != "" && !strings.Contains(after[0].Message, tc.message) {
				t.Errorf("%s: message %q has no %q", tc.reason, after[0].Message, tc.message)
			}
			if write := !conditionsEqual(tc.before, after); write != tc.write {
				t.Errorf("%s: writes %t, want %t", tc.reason, write, tc.write)
			}
		})
	}
}

func TestStampKeepsTheTimeOfAStatus(t *testing.T) {
	t.Parallel()
	then, now := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	before := []metav1.Condition{{Type: "A", Status: metav1.ConditionTrue, LastTransitionTime: then}, {Type: "B", Status: metav1.ConditionTrue, LastTransitionTime: then}}
	after := []metav1.Condition{{Type: "A", Status: metav1.ConditionTrue}, {Type: "B", Status: metav1.ConditionFalse}, {Type: "C", Status: metav1.ConditionTrue}}
	setTransitionTimes(before, after, now)
	for kind, want := range map[string]metav1.Time{"A": then, "B": now, "C": now} {
		if got := meta.FindStatusCondition(after, kind).LastTransitionTime; !got.Equal(&want) {
			t.Errorf("%s changed at %v, want %v", kind, got, want)
		}
	}
}
