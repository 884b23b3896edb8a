// SPDX-License-Identifier: Apache-2.0

package room

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// nodesOf draws nodes of a cluster.
func nodesOf(t *rapid.T, most int) []Free {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Free {
		return Free{
			MilliCPU: rapid.Int64Range(-500, 128_000).Draw(t, "cpu"),
			Memory:   rapid.Int64Range(-1<<30, 1<<40).Draw(t, "memory"),
			Pods:     rapid.Int64Range(-1, 250).Draw(t, "pods"),
		}
	}), 0, most).Draw(t, "nodes")
}

func requestsFrom(t *rapid.T) Requests {
	return Requests{MilliCPU: rapid.Int64Range(0, 64_000).Draw(t, "cpu"), Memory: rapid.Int64Range(0, 1<<38).Draw(t, "memory")}
}

// A Histogram never has more room than the nodes, has few buckets, and does not depend on the order of the nodes.
func TestHistogramNeverOverstates(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := nodesOf(t, 200)
		h := New(nodes)
		if len(h) > MaxBuckets {
			t.Fatalf("%d buckets, want at most %d", len(h), MaxBuckets)
		}
		if other := New(rapid.Permutation(nodes).Draw(t, "order")); !slices.Equal(h, other) {
			t.Fatalf("got %v and, in another order of the nodes, %v", h, other)
		}
		if again := FromAPI(h.ToAPI()); !slices.Equal(again, h) {
			t.Fatalf("got %v from the report of %v", again, h)
		}
		r, fits := requestsFrom(t), int64(0)
		for _, n := range nodes {
			fits += n.Fit(r)
		}
		if got := h.Fit(r); got > fits || len(nodes) <= MaxBuckets && got != fits {
			t.Fatalf("%d of %+v fit into %v, and %d into the nodes", got, r, h, fits)
		}
	})
}

// Place fills nodes as a first-fit of the same Pods does.
func TestPlaceIsFirstFit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := New(nodesOf(t, MaxBuckets))
		var nodes []Free
		for _, b := range h {
			nodes = append(nodes, slices.Repeat([]Free{b.Free}, int(b.Nodes))...)
		}
		for range rapid.IntRange(1, 3).Draw(t, "kinds") {
			r, n := requestsFrom(t), rapid.Int64Range(0, 300).Draw(t, "replicas")
			h = h.Place(r, n)
			for range n {
				if i := slices.IndexFunc(nodes, func(f Free) bool { return f.Fit(r) > 0 }); i >= 0 {
					nodes[i] = nodes[i].Without(r, 1)
				}
			}
		}
		r, want := requestsFrom(t), int64(0)
		for _, f := range nodes {
			want += f.Fit(r)
		}
		if got := h.Fit(r); got != want {
			t.Fatalf("%d of %+v fit into %v, want %d", got, r, h, want)
		}
	})
}

func TestGroupsKeepMostRoom(t *testing.T) {
	t.Parallel()
	var nodes []Free
	for i := range int64(1000) { // of 16 CPUs and 64 GiB, used more or less
		nodes = append(nodes, Free{MilliCPU: 500 + 13*i, Memory: 1<<30 + (i%61)<<30, Pods: 20 + i%90})
	}
	r, fits := Requests{MilliCPU: 100, Memory: 128 << 20}, int64(0)
	for _, n := range nodes {
		fits += n.Fit(r)
	}
	if got := New(nodes).Fit(r); got < fits/3 {
		t.Errorf("%d of %d small Pods fit: buckets must keep a third of the room", got, fits)
	}
}

func TestLacks(t *testing.T) {
	t.Parallel()
	wide := Requests{MilliCPU: 2000, Memory: 2 << 30}
	for name, tc := range map[string]struct {
		reason string
		nodes  []Free
		want   string
	}{
		"nodes":  {"No node is ready.", nil, "nodes"},
		"CPU":    {"No node has 2 CPUs.", []Free{{1000, 4 << 30, 10}}, "CPU"},
		"memory": {"No node has 2 GiB.", []Free{{4000, 1 << 30, 10}}, "memory"},
		"both":   {"No node has both.", []Free{{4000, 1 << 30, 10}, {1000, 4 << 30, 10}}, "CPU and memory"},
		"full":   {"Nodes that run as many Pods as they may have no room.", []Free{{4000, 4 << 30, 0}}, "nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := New(tc.nodes).Lacks(wide); got != tc.want {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
