// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"testing"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func TestInShort(t *testing.T) {
	t.Parallel()
	many := make([]v1alpha1.Target, 10)
	for i := range many {
		many[i] = v1alpha1.Target{Cluster: "c", State: v1alpha1.TargetActive}
	}
	for name, tc := range map[string]struct {
		reason  string
		targets []v1alpha1.Target
		want    string
	}{
		"Nowhere": {reason: "There is nothing to say."},
		"Whole":   {"Kinds without replicas.", []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetActive}, {Cluster: "west", State: v1alpha1.TargetActive}}, "east, west"},
		"Moving": {"What is under way is said.", []v1alpha1.Target{
			{Cluster: "east", State: v1alpha1.TargetDraining, Asked: new(int32(1))}, {Cluster: "west", State: v1alpha1.TargetActive, Asked: new(int32(3))},
		}, "east=1 (Draining), west=3"},
		"Many": {"A line stays a line.", many, "c, c, c, c, c, c, c, c, 2 more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := inShort(tc.targets); got != tc.want {
				t.Errorf("%s\ninShort: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
