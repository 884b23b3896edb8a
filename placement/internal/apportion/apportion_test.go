// SPDX-License-Identifier: Apache-2.0

package apportion

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// cluster returns a cluster with a name, a weight and further fields.
func cluster(name string, weight int64, more ...func(*Cluster)) Cluster {
	c := Cluster{Name: name, Weight: weight}
	for _, f := range more {
		f(&c)
	}
	return c
}

func minimum(n int64) func(*Cluster)  { return func(c *Cluster) { c.Min = n } }
func maximum(n int64) func(*Cluster)  { return func(c *Cluster) { c.Max = &n } }
func capacity(n int64) func(*Cluster) { return func(c *Cluster) { c.Capacity = &n } }
func current(n int64) func(*Cluster)  { return func(c *Cluster) { c.Current = n } }

func TestDivide(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		total    int64
		clusters []Cluster
		want     Result
	}{
		"NoCluster": {
			reason: "without a cluster all replicas are unplaced, which is not an error", total: 3,
			want: Result{Unplaced: 3},
		},
		"Equal": {
			reason: "the odd replica goes to the lesser name", total: 5,
			clusters: []Cluster{cluster("west", 1), cluster("east", 1)},
			want:     Result{Shares: []Share{{Name: "east", Replicas: 3}, {Name: "west", Replicas: 2}}},
		},
		"Weights": {
			reason: "weights 3:1 divide 8 into 6 and 2", total: 8,
			clusters: []Cluster{cluster("east", 3), cluster("west", 1)},
			want:     Result{Shares: []Share{{Name: "east", Replicas: 6}, {Name: "west", Replicas: 2}}},
		},
		"TextbookSeats": {
			reason: "53, 24 and 23 of 100 for 7 seats: Webster gives 3, 2, 2 and D'Hondt 4, 2, 1", total: 7,
			clusters: []Cluster{cluster("a", 53), cluster("b", 24), cluster("c", 23)},
			want:     Result{Shares: []Share{{Name: "a", Replicas: 3}, {Name: "b", Replicas: 2}, {Name: "c", Replicas: 2}}},
		},
		"LargerWeightWinsTies": {
			reason: "the quotients 1/1 and 3/3 are equal, and the greater weight comes first", total: 3,
			clusters: []Cluster{cluster("a", 1), cluster("b", 3)},
			want:     Result{Shares: []Share{{Name: "a", Replicas: 1}, {Name: "b", Replicas: 2}}},
		},
		"MinFirst": {
			reason: "west gets its minimum although its weight is small", total: 4,
			clusters: []Cluster{cluster("east", 100), cluster("west", 1, minimum(2))},
			want:     Result{Shares: []Share{{Name: "east", Replicas: 2}, {Name: "west", Replicas: 2}}},
		},
		"MinimumsTooLarge": {
			reason: "5 replicas for minimums of 8 are divided by weight, and the shares have the shortfall", total: 5,
			clusters: []Cluster{cluster("east", 2, minimum(4)), cluster("west", 1, minimum(4))},
			want:     Result{Shares: []Share{{Name: "east", Replicas: 3, Shortfall: 1}, {Name: "west", Replicas: 2, Shortfall: 2}}},
		},
		"Max": {
			reason: "replicas above the maximum of east go to west", total: 6,
			clusters: []Cluster{cluster("east", 5, maximum(2)), cluster("west", 1)},
			want:     Result{Shares: []Share{{Name: "east", Replicas: 2, LimitedBy: BoundMax}, {Name: "west", Replicas: 4}}},
		},
		"CapacityBelowMin": {
			reason: "a minimum does not increase the capacity", total: 6,
			clusters: []Cluster{cluster("east", 1, minimum(3), capacity(1)), cluster("west", 1)},
			want:     Result{Shares: []Share{{Name: "east", Replicas: 1, Shortfall: 2, LimitedBy: BoundCapacity}, {Name: "west", Replicas: 5}}},
		},
		"NothingFits": {
			reason: "the result has the unplaced replicas and the bounds", total: 9,
			clusters: []Cluster{cluster("east", 1, capacity(2)), cluster("west", 1, maximum(3)), cluster("zero", 0, minimum(1))},
			want: Result{Unplaced: 3, Shares: []Share{
				{Name: "east", Replicas: 2, LimitedBy: BoundCapacity}, {Name: "west", Replicas: 3, LimitedBy: BoundMax},
				{Name: "zero", Replicas: 1, LimitedBy: BoundWeight},
			}},
		},
		"Drained": {
			reason: "the other clusters keep their replicas and share those of the drained one", total: 9,
			clusters: []Cluster{cluster("a", 1, current(3), capacity(0)), cluster("b", 1, current(2)), cluster("c", 1, current(4))},
			want:     Result{Shares: []Share{{Name: "a", LimitedBy: BoundCapacity}, {Name: "b", Replicas: 5}, {Name: "c", Replicas: 4}}},
		},
		"BackAgain": {
			reason: "a cluster that returns takes no replicas from its replacements", total: 9,
			clusters: []Cluster{cluster("a", 1), cluster("b", 1, current(5)), cluster("c", 1, current(4))},
			want:     Result{Shares: []Share{{Name: "a"}, {Name: "b", Replicas: 5}, {Name: "c", Replicas: 4}}},
		},
		"BackAndGrown": {
			reason: "a cluster that returns gets new replicas first", total: 12,
			clusters: []Cluster{cluster("a", 1), cluster("b", 1, current(5)), cluster("c", 1, current(4))},
			want:     Result{Shares: []Share{{Name: "a", Replicas: 3}, {Name: "b", Replicas: 5}, {Name: "c", Replicas: 4}}},
		},
		"MinRaised": {
			reason: "a minimum takes replicas from other clusters, which a weight does not", total: 6,
			clusters: []Cluster{cluster("a", 1, current(6)), cluster("b", 1, minimum(2))},
			want:     Result{Shares: []Share{{Name: "a", Replicas: 4}, {Name: "b", Replicas: 2}}},
		},
		"ToNothing": {
			reason: "a scale to 0 leaves a shortfall of the minimum", total: 0,
			clusters: []Cluster{cluster("a", 1, current(6), minimum(1)), cluster("b", 1, current(2))},
			want:     Result{Shares: []Share{{Name: "a", Shortfall: 1}, {Name: "b"}}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Divide(tc.total, tc.clusters)
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		total    int64
		clusters []Cluster
		want     []string
	}{
		"Total":    {reason: "the number of replicas must not be negative", total: -1, want: []string{"replicas -1"}},
		"Million":  {reason: "a greater number would take too long", total: MaxTotal + 1, want: []string{"replicas 1000001", "0 to 1000000"}},
		"Nameless": {reason: "shares are identified by name", clusters: []Cluster{cluster("", 1)}, want: []string{`cluster ""`}},
		"Twice":    {reason: "a name must identify one cluster", clusters: []Cluster{cluster("a", 1), cluster("a", 2)}, want: []string{`cluster "a": the name must be set and unique`}},
		"Weight":   {reason: "products must fit into 64 bits", clusters: []Cluster{cluster("a", MaxWeight+1)}, want: []string{`cluster "a": weight 1000001: must be 0 to 1000000`}},
		"MinMax":   {reason: "minimum and maximum must be compatible", clusters: []Cluster{cluster("a", 1, minimum(3), maximum(2))}, want: []string{`cluster "a": max 2: must be at least its min of 3`}},
		"Negative": {reason: "the error has all problems", clusters: []Cluster{cluster("a", -1, minimum(-2), maximum(-3), capacity(-4), current(-5))}, want: []string{"weight -1", "min -2", "max -3", "capacity -4", "current -5"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Divide(tc.total, tc.clusters)
			if err == nil {
				t.Fatalf("%s: got no error", tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: got %v, want %q in it", tc.reason, err, want)
				}
			}
		})
	}
}
