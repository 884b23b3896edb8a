// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestGoneSince(t *testing.T) {
	t.Parallel()
	const grace = 15 * time.Minute
	a, b := incarnation{"a", "1"}, incarnation{"b", "2"}
	type step struct {
		minute   int
		suspects []incarnation
	}
	cases := map[string]struct {
		reason string
		steps  []step
		want   []incarnation
	}{
		"First":       {reason: "A new leader has no memory.", steps: []step{{0, []incarnation{a}}}},
		"Early":       {reason: "A reboot that registers the Node again takes minutes.", steps: []step{{0, []incarnation{a}}, {14, []incarnation{a}}}},
		"Late":        {reason: "The Node was gone for the whole grace period.", steps: []step{{0, []incarnation{a}}, {7, []incarnation{a}}, {15, []incarnation{a}}}, want: []incarnation{a}},
		"Interrupted": {reason: "The Node was back in between, so the machine was not off.", steps: []step{{0, []incarnation{a}}, {10, nil}, {12, []incarnation{a}}, {20, []incarnation{a}}}},
		"Each":        {reason: "Each Node has a grace period of its own.", steps: []step{{0, []incarnation{a}}, {10, []incarnation{a, b}}, {16, []incarnation{a, b}}}, want: []incarnation{a}},
		"SameName":    {reason: "A second incarnation of the name has a grace period of its own.", steps: []step{{0, []incarnation{a}}, {16, []incarnation{{"a", "2"}}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := goneSince{}
			start := time.Now()
			var got []incarnation
			for _, s := range tc.steps {
				suspects := map[incarnation]bool{}
				for _, l := range s.suspects {
					suspects[l] = true
				}
				got = seen.observe(start.Add(time.Duration(s.minute)*time.Minute), grace, suspects)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(incarnation{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
