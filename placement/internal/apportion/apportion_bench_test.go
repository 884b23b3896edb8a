// SPDX-License-Identifier: Apache-2.0

package apportion

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
)

// largestRemainder is what peers do, for the comparison only: the whole part of each
// quota, and what is left to the largest remainders.
func largestRemainder(total int64, rows []Cluster, _ map[string]int64) map[string]int64 {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Cluster) bool { return r.Capacity != nil && *r.Capacity == 0 })
	var sum int64
	for _, r := range rows {
		sum += r.Weight
	}
	shares, left := map[string]int64{}, total
	for _, r := range rows {
		shares[r.Name] = total * r.Weight / sum
		left -= shares[r.Name]
	}
	slices.SortFunc(rows, func(a, b Cluster) int {
		return cmp.Or(cmp.Compare(total*b.Weight%sum, total*a.Weight%sum), cmp.Compare(a.Name, b.Name))
	})
	for _, r := range rows[:left] {
		shares[r.Name]++
	}
	return shares
}

// BenchmarkTaken prints in what part of random cases a cluster loses a replica when
// the total grows, or when another cluster is drained: ours and largest remainder.
func BenchmarkTaken(b *testing.B) {
	ways := map[string]func(int64, []Cluster, map[string]int64) map[string]int64{
		"webster": func(total int64, rows []Cluster, now map[string]int64) map[string]int64 {
			return divided(b, total, with(rows, now))
		},
		"largest-remainder": largestRemainder,
	}
	for _, name := range []string{"webster", "largest-remainder"} {
		b.Run(name, func(b *testing.B) {
			var l losses
			for b.Loop() {
				l = study(3000, ways[name])
			}
			b.ReportMetric(100*float64(l.up)/float64(l.cases), "%scale-up")
			b.ReportMetric(100*float64(l.drain)/float64(l.cases), "%drain")
		})
	}
}

// BenchmarkDivide prints what a division costs.
func BenchmarkDivide(b *testing.B) {
	for _, size := range []struct {
		clusters int
		total    int64
	}{{3, 12}, {100, 1_000}, {1_000, 100_000}, {1_000, MaxTotal}} {
		rows := make([]Cluster, size.clusters)
		for i := range rows {
			rows[i] = Cluster{Name: fmt.Sprint(i), Weight: int64(1 + i%7)}
		}
		b.Run(fmt.Sprintf("%d-clusters-%d-replicas", size.clusters, size.total), func(b *testing.B) {
			for b.Loop() {
				if _, err := Divide(size.total, rows); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The comparison compares: largest remainder does take replicas.
func TestPeersTake(t *testing.T) {
	t.Parallel()
	if l := study(3000, largestRemainder); l.up < 60 || l.drain < 1 {
		t.Errorf("largest remainder takes in %+v: the random cases prove nothing", l)
	}
}
