// SPDX-License-Identifier: Apache-2.0

package apportion

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
)

// largestRemainder is the method of other projects, for the comparison: the integer part of each quota, and
// the rest by the largest remainders.
func largestRemainder(total int64, clusters []Cluster, _ map[string]int64) map[string]int64 {
	clusters = slices.DeleteFunc(slices.Clone(clusters), func(r Cluster) bool { return r.Capacity != nil && *r.Capacity == 0 })
	var sum int64
	for _, r := range clusters {
		sum += r.Weight
	}
	shares, left := map[string]int64{}, total
	for _, r := range clusters {
		shares[r.Name] = total * r.Weight / sum
		left -= shares[r.Name]
	}
	slices.SortFunc(clusters, func(a, b Cluster) int {
		return cmp.Or(cmp.Compare(total*b.Weight%sum, total*a.Weight%sum), cmp.Compare(a.Name, b.Name))
	})
	for _, r := range clusters[:left] {
		shares[r.Name]++
	}
	return shares
}

// BenchmarkTaken reports the percentage of random cases in which a cluster loses a replica when the total
// grows, or when another cluster is drained, for both methods.
func BenchmarkTaken(b *testing.B) {
	methods := map[string]func(int64, []Cluster, map[string]int64) map[string]int64{
		"webster": func(total int64, clusters []Cluster, now map[string]int64) map[string]int64 {
			return divided(b, total, withCurrent(clusters, now))
		},
		"largest-remainder": largestRemainder,
	}
	for _, name := range []string{"webster", "largest-remainder"} {
		b.Run(name, func(b *testing.B) {
			var l losses
			for b.Loop() {
				l = study(3000, methods[name])
			}
			b.ReportMetric(100*float64(l.up)/float64(l.cases), "%scale-up")
			b.ReportMetric(100*float64(l.drain)/float64(l.cases), "%drain")
		})
	}
}

// BenchmarkDivide measures the time of a division.
func BenchmarkDivide(b *testing.B) {
	for _, size := range []struct {
		clusters int
		total    int64
	}{{3, 12}, {100, 1_000}, {1_000, 100_000}, {1_000, MaxTotal}} {
		clusters := make([]Cluster, size.clusters)
		for i := range clusters {
			clusters[i] = Cluster{Name: fmt.Sprint(i), Weight: int64(1 + i%7)}
		}
		b.Run(fmt.Sprintf("%d-clusters-%d-replicas", size.clusters, size.total), func(b *testing.B) {
			for b.Loop() {
				if _, err := Divide(size.total, clusters); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The random cases are meaningful: with largest remainder, clusters lose replicas.
func TestLargestRemainderTakesReplicas(t *testing.T) {
	t.Parallel()
	if l := study(3000, largestRemainder); l.up < 60 || l.drain < 1 {
		t.Errorf("largest remainder: got %+v, want losses in more of the random cases", l)
	}
}
