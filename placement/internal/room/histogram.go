// SPDX-License-Identifier: Apache-2.0

package room

import (
	"cmp"
	"math/bits"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// MaxBuckets is the largest number of buckets of a Histogram.
const MaxBuckets = 32

// MaxReplicas is the most that a count of replicas says: a greater one means no more.
const MaxReplicas = 1_000_000

// Requests are what one Pod requests. Nothing of it is negative.
type Requests struct {
	// MilliCPU is in thousandths of a CPU.
	MilliCPU int64
	// Memory is in bytes.
	Memory int64
}

// Compare sorts larger requests first.
func (r Requests) Compare(o Requests) int {
	return cmp.Or(cmp.Compare(o.MilliCPU, r.MilliCPU), cmp.Compare(o.Memory, r.Memory))
}

// Free is what one node has free. It may be negative.
type Free struct {
	// MilliCPU is in thousandths of a CPU.
	MilliCPU int64
	// Memory is in bytes.
	Memory int64
	// Pods is how many more Pods the node may run.
	Pods int64
}

// Fit returns how many Pods with these requests fit.
func (f Free) Fit(r Requests) int64 {
	n := min(f.Pods, MaxReplicas)
	if r.MilliCPU > 0 {
		n = min(n, f.MilliCPU/r.MilliCPU)
	}
	if r.Memory > 0 {
		n = min(n, f.Memory/r.Memory)
	}
	return max(0, n)
}

// Without returns what is free after n Pods with these requests were added.
func (f Free) Without(r Requests, n int64) Free {
	return Free{MilliCPU: f.MilliCPU - n*r.MilliCPU, Memory: f.Memory - n*r.Memory, Pods: f.Pods - n}
}

func (f Free) compare(o Free) int {
	return cmp.Or(cmp.Compare(f.MilliCPU, o.MilliCPU), cmp.Compare(f.Memory, o.Memory), cmp.Compare(f.Pods, o.Pods))
}

// atMost returns the smaller of both in each resource.
func (f Free) atMost(o Free) Free {
	return Free{MilliCPU: min(f.MilliCPU, o.MilliCPU), Memory: min(f.Memory, o.Memory), Pods: min(f.Pods, o.Pods)}
}

// Bucket is a group of nodes.
type Bucket struct {
	// Nodes is their number.
	Nodes int64
	// Free is what each of them has at least.
	Free Free
}

// Histogram is what the nodes of a cluster have free, in groups of similar nodes.
type Histogram []Bucket

// New groups nodes into at most MaxBuckets buckets. The order of the nodes does not matter. Nodes that may run no more
// Pods are left out.
func New(nodes []Free) Histogram {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(f Free) bool { return f.Pods <= 0 })
	for i := range nodes {
		nodes[i].MilliCPU, nodes[i].Memory = max(0, nodes[i].MilliCPU), max(0, nodes[i].Memory)
	}
	slices.SortFunc(nodes, Free.compare)
	for kept := maxBits; ; kept-- { // of 0 bits all nodes are in one bucket
		if h := group(nodes, kept); len(h) <= MaxBuckets {
			return h
		}
	}
}

// group puts nodes into one bucket whose values are equal in so many leading bits.
func group(nodes []Free, kept int) Histogram {
	var h Histogram
	index := map[Free]int{}
	for _, f := range nodes {
		rounded := f
		if kept < maxBits { // seldom are Pods what a node lacks
			rounded = Free{MilliCPU: roundDown(f.MilliCPU, kept), Memory: roundDown(f.Memory, kept), Pods: roundDown(f.Pods, min(kept, coarseBits))}
		}
		i, ok := index[rounded]
		if !ok {
			i, h = len(h), append(h, Bucket{Free: f})
			index[rounded] = i
		}
		h[i].Nodes++
		h[i].Free = h[i].Free.atMost(f)
	}
	return h
}

// maxBits is the number of bits with which nothing is rounded.
const maxBits = 63

// coarseBits is the number of bits of a length: with as many kept bits or fewer, only the length is rounded.
const coarseBits = 6

// roundDown keeps the leading bits of a number from 0. From coarseBits bits on, fewer of them also make a coarser
// number of the length: in the end all numbers are 0.
func roundDown(n int64, kept int) int64 {
	length := bits.Len64(uint64(n))
	if kept > coarseBits {
		drop := max(0, length-(kept-coarseBits))
		return n >> drop << drop
	}
	if kept == 0 {
		return 0
	}
	return int64(length >> (coarseBits - kept))
}

// FromAPI returns the Histogram of a report. It heeds no more than MaxBuckets buckets, and takes what cannot be for
// no room.
func FromAPI(reported *v1alpha1.Room) Histogram {
	if reported == nil {
		return nil
	}
	var h Histogram
	for _, b := range reported.Buckets[:min(len(reported.Buckets), MaxBuckets)] {
		h = append(h, Bucket{Nodes: max(0, int64(b.Nodes)), Free: Free{
			MilliCPU: max(0, b.CPU.MilliValue()), Memory: max(0, b.Memory.Value()), Pods: max(0, b.Pods),
		}})
	}
	return h
}

// ToAPI returns the report of a Histogram.
func (h Histogram) ToAPI() *v1alpha1.Room {
	r := &v1alpha1.Room{}
	for _, b := range h {
		r.Buckets = append(r.Buckets, v1alpha1.RoomBucket{
			Nodes: int32(b.Nodes), Pods: b.Free.Pods,
			CPU: *resource.NewMilliQuantity(b.Free.MilliCPU, resource.DecimalSI), Memory: *resource.NewQuantity(b.Free.Memory, resource.BinarySI),
		})
	}
	return r
}

// Fit returns how many Pods with these requests fit, at most MaxReplicas.
func (h Histogram) Fit(r Requests) int64 {
	n := int64(0)
	for _, b := range h {
		n = min(MaxReplicas, n+min(b.Nodes, MaxReplicas)*b.Free.Fit(r))
	}
	return n
}

// Place returns what is free after n Pods with these requests went to the first nodes that have room for them. Those
// that do not fit take no room.
func (h Histogram) Place(r Requests, n int64) Histogram {
	next := make(Histogram, 0, len(h)+1)
	for _, b := range h {
		each := b.Free.Fit(r)
		if n <= 0 || each == 0 {
			next = append(next, b)
			continue
		}
		full := min(b.Nodes, n/each)
		n -= full * each
		if full > 0 {
			next = append(next, Bucket{Nodes: full, Free: b.Free.Without(r, each)})
		}
		left := b.Nodes - full
		if left > 0 && n > 0 { // less than each
			next = append(next, Bucket{Nodes: 1, Free: b.Free.Without(r, n)})
			left, n = left-1, 0
		}
		if left > 0 {
			next = append(next, Bucket{Nodes: left, Free: b.Free})
		}
	}
	return next
}

// Lacks names the resource of which the nodes have too little for one more Pod: "CPU", "memory" or "Pods"; "CPU and
// memory" if no node has enough of both, and "nodes" without nodes.
func (h Histogram) Lacks(r Requests) string {
	switch cpu, memory := (Requests{MilliCPU: r.MilliCPU}), (Requests{Memory: r.Memory}); {
	case len(h) == 0:
		return "nodes"
	case h.Fit(Requests{}) == 0:
		return "Pods"
	case h.Fit(cpu) == 0:
		return "CPU"
	case h.Fit(memory) == 0:
		return "memory"
	}
	return "CPU and memory"
}
