// SPDX-License-Identifier: Apache-2.0

package apportion

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// anyClusters draws up to 12 clusters with random bounds.
func anyClusters(t *rapid.T) []Cluster {
	bound := rapid.Ptr(rapid.Int64Range(0, 60), true)
	clusters := make([]Cluster, rapid.IntRange(1, 12).Draw(t, "clusters"))
	for i := range clusters {
		clusters[i] = Cluster{
			Name: string(rune('a' + i)), Weight: rapid.Int64Range(0, 20).Draw(t, "weight"),
			Min: rapid.Int64Range(0, 6).Draw(t, "min"), Max: bound.Draw(t, "max"), Capacity: bound.Draw(t, "capacity"),
		}
		if m := clusters[i].Max; m != nil {
			clusters[i].Min = min(clusters[i].Min, *m)
		}
	}
	return clusters
}

// divided returns the shares of a division by name.
func divided(t rapid.TB, total int64, clusters []Cluster) map[string]int64 {
	t.Helper()
	res, err := Divide(total, clusters)
	if err != nil {
		t.Fatal(err)
	}
	shares := map[string]int64{}
	for _, s := range res.Shares {
		shares[s.Name] = s.Replicas
	}
	return shares
}

// withCurrent returns the clusters with their present replicas.
func withCurrent(clusters []Cluster, current map[string]int64) []Cluster {
	clusters = slices.Clone(clusters)
	for i := range clusters {
		clusters[i].Current = current[clusters[i].Name]
	}
	return clusters
}

// Shares are within the bounds and add up to the total. No cluster with room lacks replicas to its minimum.
func TestSharesFit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total, clusters := rapid.Int64Range(0, 200).Draw(t, "total"), anyClusters(t)
		for i := range clusters {
			clusters[i].Current = rapid.Int64Range(0, 30).Draw(t, "current")
		}
		res, err := Divide(total, clusters)
		if err != nil {
			t.Fatal(err)
		}
		sum, minimums := res.Unplaced, int64(0)
		for i, s := range res.Shares {
			r := clusters[i]
			sum += s.Replicas
			if r.Max != nil && s.Replicas > *r.Max || r.Capacity != nil && s.Replicas > *r.Capacity {
				t.Fatalf("%s gets %d over its bounds", s.Name, s.Replicas)
			}
			need := r.Min
			if r.Capacity != nil {
				need = min(need, *r.Capacity)
			}
			minimums += need
			if s.Shortfall != max(0, r.Min-s.Replicas) {
				t.Fatalf("%s has a shortfall of %d with %d of %d", s.Name, s.Shortfall, s.Replicas, r.Min)
			}
			if res.Unplaced > 0 && s.LimitedBy == BoundNone {
				t.Fatalf("%d unplaced, and %s has room", res.Unplaced, s.Name)
			}
		}
		if sum != total {
			t.Fatalf("shares and unplaced replicas are %d of %d", sum, total)
		}
		for i, s := range res.Shares {
			if room := clusters[i].Capacity; minimums <= total && s.Shortfall > 0 && (room == nil || *room > s.Replicas) {
				t.Fatalf("%s lacks %d of its minimum, although all minimums fit", s.Name, s.Shortfall)
			}
		}
	})
}

// The result does not depend on the order of the clusters.
func TestOrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total, clusters := rapid.Int64Range(0, 200).Draw(t, "total"), anyClusters(t)
		other := rapid.Permutation(clusters).Draw(t, "other")
		if diff := cmp.Diff(divided(t, total, clusters), divided(t, total, other)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// A division after scaling up and down is the same as a new one.
func TestHistoryDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		clusters, now := anyClusters(t), map[string]int64{}
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			total := rapid.Int64Range(0, 200).Draw(t, "total")
			now = divided(t, total, withCurrent(clusters, now))
			if diff := cmp.Diff(divided(t, total, clusters), now); diff != "" {
				t.Fatalf("at %d -new +kept\n%s", total, diff)
			}
		}
	})
}

// A cluster loses no replica when the total grows, or when the room of another cluster changes.
func TestNoReplicaIsTaken(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		clusters, now := anyClusters(t), map[string]int64{}
		total := rapid.Int64Range(0, 100).Draw(t, "total")
		now = divided(t, total, withCurrent(clusters, now))
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			changed := -1
			if rapid.Bool().Draw(t, "grow") {
				total += rapid.Int64Range(0, 50).Draw(t, "more")
			} else {
				changed = rapid.IntRange(0, len(clusters)-1).Draw(t, "cluster")
				// Less room, or more for a cluster with its minimum: a minimum that becomes possible takes
				// replicas from the others.
				room := rapid.Int64Range(0, 60).Draw(t, "room")
				if now[clusters[changed].Name] < clusters[changed].Min {
					room = min(room, now[clusters[changed].Name])
				}
				clusters[changed].Capacity = &room
			}
			next := divided(t, total, withCurrent(clusters, now))
			for i, r := range clusters {
				if i != changed && next[r.Name] < now[r.Name] {
					t.Fatalf("%s: from %d to %d", r.Name, now[r.Name], next[r.Name])
				}
			}
			now = next
		}
	})
}

// No replica is taken in 3,000 random cases, each with a scale-up and a drain.
func TestRandomCasesTakeNothing(t *testing.T) {
	t.Parallel()
	taken := study(3000, func(total int64, clusters []Cluster, now map[string]int64) map[string]int64 {
		return divided(t, total, withCurrent(clusters, now))
	})
	if taken != (losses{cases: 3000}) {
		t.Errorf("replicas taken: %+v", taken)
	}
}

// losses counts the cases in which a cluster loses a replica to another.
type losses struct{ cases, up, drain int }

// study counts the losses of a method in random cases: 2 to 10 clusters with weights, where first one replica
// is added, then one cluster is drained.
func study(cases int, divide func(int64, []Cluster, map[string]int64) map[string]int64) losses {
	rnd := rand.New(rand.NewPCG(7, 7))
	l := losses{cases: cases}
	for range cases {
		clusters := make([]Cluster, 2+rnd.IntN(9))
		for i := range clusters {
			clusters[i] = Cluster{Name: string(rune('a' + i)), Weight: 1 + rnd.Int64N(10)}
		}
		total := 1 + rnd.Int64N(100)
		first := divide(total, clusters, nil)
		total++
		second := divide(total, clusters, first)
		l.up += lost(clusters, first, second)
		drained := rnd.IntN(len(clusters))
		clusters[drained].Capacity = new(int64)
		third := divide(total, clusters, second)
		clusters = slices.Delete(clusters, drained, drained+1)
		l.drain += lost(clusters, second, third)
	}
	return l
}

// lost returns 1 when any cluster has fewer replicas than before.
func lost(clusters []Cluster, before, after map[string]int64) int {
	for _, r := range clusters {
		if after[r.Name] < before[r.Name] {
			return 1
		}
	}
	return 0
}
