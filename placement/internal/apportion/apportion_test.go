// SPDX-License-Identifier: Apache-2.0

package apportion

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// row makes a row of a name, a weight and what else is said.
func row(name string, weight int64, more ...func(*Cluster)) Cluster {
	r := Cluster{Name: name, Weight: weight}
	for _, f := range more {
		f(&r)
	}
	return r
}

func least(n int64) func(*Cluster)    { return func(r *Cluster) { r.Min = n } }
func most(n int64) func(*Cluster)     { return func(r *Cluster) { r.Max = &n } }
func capacity(n int64) func(*Cluster) { return func(r *Cluster) { r.Capacity = &n } }
func has(n int64) func(*Cluster)      { return func(r *Cluster) { r.Current = n } }

func TestDivide(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		total  int64
		rows   []Cluster
		want   Result
	}{
		"Nobody": {
			reason: "without a cluster nothing is placed, and that is no error", total: 3,
			want: Result{Unplaced: 3},
		},
		"Equal": {
			reason: "the odd replica goes to the lesser name", total: 5,
			rows: []Cluster{row("west", 1), row("east", 1)},
			want: Result{Shares: []Share{{Name: "east", Replicas: 3}, {Name: "west", Replicas: 2}}},
		},
		"Weights": {
			reason: "3:1", total: 8,
			rows: []Cluster{row("east", 3), row("west", 1)},
			want: Result{Shares: []Share{{Name: "east", Replicas: 6}, {Name: "west", Replicas: 2}}},
		},
		"TextbookSeats": {
			reason: "53, 24 and 23 of 100 for 7 seats: Webster gives 3, 2, 2 and D'Hondt 4, 2, 1", total: 7,
			rows: []Cluster{row("a", 53), row("b", 24), row("c", 23)},
			want: Result{Shares: []Share{{Name: "a", Replicas: 3}, {Name: "b", Replicas: 2}, {Name: "c", Replicas: 2}}},
		},
		"LargerWeightWinsTies": {
			reason: "1/1 equals 3/3: the larger weight comes first", total: 3,
			rows: []Cluster{row("a", 1), row("b", 3)},
			want: Result{Shares: []Share{{Name: "a", Replicas: 1}, {Name: "b", Replicas: 2}}},
		},
		"MinFirst": {
			reason: "west gets its minimum although its weight is small", total: 4,
			rows: []Cluster{row("east", 100), row("west", 1, least(2))},
			want: Result{Shares: []Share{{Name: "east", Replicas: 2}, {Name: "west", Replicas: 2}}},
		},
		"MinimaTooLarge": {
			reason: "5 of the 8 that are asked for: by weight, and each is told what it lacks", total: 5,
			rows: []Cluster{row("east", 2, least(4)), row("west", 1, least(4))},
			want: Result{Shares: []Share{{Name: "east", Replicas: 3, Shortfall: 1}, {Name: "west", Replicas: 2, Shortfall: 2}}},
		},
		"Max": {
			reason: "what east may not have goes west", total: 6,
			rows: []Cluster{row("east", 5, most(2)), row("west", 1)},
			want: Result{Shares: []Share{{Name: "east", Replicas: 2, LimitedBy: BoundMax}, {Name: "west", Replicas: 4}}},
		},
		"CapacityBelowMin": {
			reason: "a minimum makes no room", total: 6,
			rows: []Cluster{row("east", 1, least(3), capacity(1)), row("west", 1)},
			want: Result{Shares: []Share{{Name: "east", Replicas: 1, Shortfall: 2, LimitedBy: BoundCapacity}, {Name: "west", Replicas: 5}}},
		},
		"NothingFits": {
			reason: "the rest is told, and what is full", total: 9,
			rows: []Cluster{row("east", 1, capacity(2)), row("west", 1, most(3)), row("zero", 0, least(1))},
			want: Result{Unplaced: 3, Shares: []Share{
				{Name: "east", Replicas: 2, LimitedBy: BoundCapacity}, {Name: "west", Replicas: 3, LimitedBy: BoundMax},
				{Name: "zero", Replicas: 1, LimitedBy: BoundWeight},
			}},
		},
		"Drained": {
			reason: "the rest of the clusters keep theirs and share what is free", total: 9,
			rows: []Cluster{row("a", 1, has(3), capacity(0)), row("b", 1, has(2)), row("c", 1, has(4))},
			want: Result{Shares: []Share{{Name: "a", LimitedBy: BoundCapacity}, {Name: "b", Replicas: 5}, {Name: "c", Replicas: 4}}},
		},
		"BackAgain": {
			reason: "a cluster that is back takes nothing from those that stood in", total: 9,
			rows: []Cluster{row("a", 1), row("b", 1, has(5)), row("c", 1, has(4))},
			want: Result{Shares: []Share{{Name: "a"}, {Name: "b", Replicas: 5}, {Name: "c", Replicas: 4}}},
		},
		"BackAndGrown": {
			reason: "but it is the first to grow", total: 12,
			rows: []Cluster{row("a", 1), row("b", 1, has(5)), row("c", 1, has(4))},
			want: Result{Shares: []Share{{Name: "a", Replicas: 3}, {Name: "b", Replicas: 5}, {Name: "c", Replicas: 4}}},
		},
		"MinRaised": {
			reason: "a minimum is a bound: it may take what weight would not", total: 6,
			rows: []Cluster{row("a", 1, has(6)), row("b", 1, least(2))},
			want: Result{Shares: []Share{{Name: "a", Replicas: 4}, {Name: "b", Replicas: 2}}},
		},
		"ToNothing": {
			reason: "scaled to 0, minima are short", total: 0,
			rows: []Cluster{row("a", 1, has(6), least(1)), row("b", 1, has(2))},
			want: Result{Shares: []Share{{Name: "a", Shortfall: 1}, {Name: "b"}}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Divide(tc.total, tc.rows)
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
		reason string
		total  int64
		rows   []Cluster
		want   []string
	}{
		"Total":    {reason: "no object has less than none", total: -1, want: []string{"replicas -1"}},
		"Million":  {reason: "nobody waits for more", total: MaxTotal + 1, want: []string{"replicas 1000001", "0 to 1000000"}},
		"Nameless": {reason: "shares are told by name", rows: []Cluster{row("", 1)}, want: []string{`cluster ""`}},
		"Twice":    {reason: "so a name stands for one cluster", rows: []Cluster{row("a", 1), row("a", 2)}, want: []string{`cluster "a": want a name that no other has`}},
		"Weight":   {reason: "products must fit", rows: []Cluster{row("a", MaxWeight+1)}, want: []string{`cluster "a": weight 1000001: want 0 to 1000000`}},
		"MinMax":   {reason: "both cannot hold", rows: []Cluster{row("a", 1, least(3), most(2))}, want: []string{`cluster "a": max 2: want at least its min of 3`}},
		"Negative": {reason: "all faults at once", rows: []Cluster{row("a", -1, least(-2), most(-3), capacity(-4), has(-5))}, want: []string{"weight -1", "min -2", "max -3", "capacity -4", "current -5"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Divide(tc.total, tc.rows)
			if err == nil {
				t.Fatalf("%s: no error", tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: got %v, want %q in it", tc.reason, err, want)
				}
			}
		})
	}
}
