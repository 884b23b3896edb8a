// SPDX-License-Identifier: Apache-2.0

package apportion

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// anyRows draws up to 12 clusters with all kinds of bounds.
func anyRows(t *rapid.T) []Cluster {
	bound := rapid.Ptr(rapid.Int64Range(0, 60), true)
	rows := make([]Cluster, rapid.IntRange(1, 12).Draw(t, "clusters"))
	for i := range rows {
		rows[i] = Cluster{
			Name: string(rune('a' + i)), Weight: rapid.Int64Range(0, 20).Draw(t, "weight"),
			Min: rapid.Int64Range(0, 6).Draw(t, "min"), Max: bound.Draw(t, "max"), Capacity: bound.Draw(t, "capacity"),
		}
		if m := rows[i].Max; m != nil {
			rows[i].Min = min(rows[i].Min, *m)
		}
	}
	return rows
}

// divided divides, and returns the shares by name.
func divided(t rapid.TB, total int64, rows []Cluster) map[string]int64 {
	t.Helper()
	res, err := Divide(total, rows)
	if err != nil {
		t.Fatal(err)
	}
	shares := map[string]int64{}
	for _, s := range res.Shares {
		shares[s.Name] = s.Replicas
	}
	return shares
}

// with are the rows with what the clusters have.
func with(rows []Cluster, current map[string]int64) []Cluster {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Current = current[rows[i].Name]
	}
	return rows
}

// What is given fits, adds up, and leaves nobody's minimum unmet where there is room.
func TestSharesFit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total, rows := rapid.Int64Range(0, 200).Draw(t, "total"), anyRows(t)
		for i := range rows {
			rows[i].Current = rapid.Int64Range(0, 30).Draw(t, "current")
		}
		res, err := Divide(total, rows)
		if err != nil {
			t.Fatal(err)
		}
		sum, minima := res.Unplaced, int64(0)
		for i, s := range res.Shares {
			r := rows[i]
			sum += s.Replicas
			if r.Max != nil && s.Replicas > *r.Max || r.Capacity != nil && s.Replicas > *r.Capacity {
				t.Fatalf("%s gets %d over its bounds", s.Name, s.Replicas)
			}
			need := r.Min
			if r.Capacity != nil {
				need = min(need, *r.Capacity)
			}
			minima += need
			if s.Shortfall != max(0, r.Min-s.Replicas) {
				t.Fatalf("%s is told to be short of %d with %d of %d", s.Name, s.Shortfall, s.Replicas, r.Min)
			}
			if res.Unplaced > 0 && s.LimitedBy == BoundNone {
				t.Fatalf("%d unplaced, and %s is not full", res.Unplaced, s.Name)
			}
		}
		if sum != total {
			t.Fatalf("gave out %d of %d", sum, total)
		}
		for i, s := range res.Shares {
			if room := rows[i].Capacity; minima <= total && s.Shortfall > 0 && (room == nil || *room > s.Replicas) {
				t.Fatalf("%s lacks %d of its minimum, although all minima fit", s.Name, s.Shortfall)
			}
		}
	})
}

// The order of the rows says nothing.
func TestOrderIsNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total, rows := rapid.Int64Range(0, 200).Draw(t, "total"), anyRows(t)
		other := rapid.Permutation(rows).Draw(t, "other")
		if diff := cmp.Diff(divided(t, total, rows), divided(t, total, other)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// Where a division comes from does not show: up and down ends where a new one would.
func TestPathIsNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rows, now := anyRows(t), map[string]int64{}
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			total := rapid.Int64Range(0, 200).Draw(t, "total")
			now = divided(t, total, with(rows, now))
			if diff := cmp.Diff(divided(t, total, rows), now); diff != "" {
				t.Fatalf("at %d -new +kept\n%s", total, diff)
			}
		}
	})
}

// More replicas take none from a cluster; nor does a change of another's room.
func TestNobodyLosesForOthers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rows, now := anyRows(t), map[string]int64{}
		total := rapid.Int64Range(0, 100).Draw(t, "total")
		now = divided(t, total, with(rows, now))
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			changed := -1
			if rapid.Bool().Draw(t, "grow") {
				total += rapid.Int64Range(0, 50).Draw(t, "more")
			} else {
				changed = rapid.IntRange(0, len(rows)-1).Draw(t, "cluster")
				// Less room, or more for a cluster whose minimum fits already: a
				// minimum that comes into reach is a claim on the others.
				room := rapid.Int64Range(0, 60).Draw(t, "room")
				if now[rows[changed].Name] < rows[changed].Min {
					room = min(room, now[rows[changed].Name])
				}
				rows[changed].Capacity = &room
			}
			next := divided(t, total, with(rows, now))
			for i, r := range rows {
				if i != changed && next[r.Name] < now[r.Name] {
					t.Fatalf("%s: from %d to %d", r.Name, now[r.Name], next[r.Name])
				}
			}
			now = next
		}
	})
}

// The figures of the reach: 3,000 random cases, each a scale-up and a drain.
func TestRandomCasesTakeNothing(t *testing.T) {
	t.Parallel()
	taken := study(3000, func(total int64, rows []Cluster, now map[string]int64) map[string]int64 {
		return divided(t, total, with(rows, now))
	})
	if taken != (losses{cases: 3000}) {
		t.Errorf("replicas taken: %+v", taken)
	}
}

// losses count the cases in which a cluster lost a replica for another.
type losses struct{ cases, up, drain int }

// study makes random cases for a way to divide: 2 to 10 clusters with weights, first
// one more replica, then one cluster drained.
func study(cases int, divide func(int64, []Cluster, map[string]int64) map[string]int64) losses {
	rnd := rand.New(rand.NewPCG(7, 7))
	l := losses{cases: cases}
	for range cases {
		rows := make([]Cluster, 2+rnd.IntN(9))
		for i := range rows {
			rows[i] = Cluster{Name: string(rune('a' + i)), Weight: 1 + rnd.Int64N(10)}
		}
		total := 1 + rnd.Int64N(100)
		first := divide(total, rows, nil)
		total++
		second := divide(total, rows, first)
		l.up += lost(rows, first, second)
		gone := rnd.IntN(len(rows))
		rows[gone].Capacity = new(int64)
		third := divide(total, rows, second)
		rows = slices.Delete(rows, gone, gone+1)
		l.drain += lost(rows, second, third)
	}
	return l
}

// lost is 1 when any of the rows has less than before.
func lost(rows []Cluster, before, after map[string]int64) int {
	for _, r := range rows {
		if after[r.Name] < before[r.Name] {
			return 1
		}
	}
	return 0
}
