// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAbsences(t *testing.T) {
	t.Parallel()
	const grace = 15 * time.Minute
	a, b := life{"a", "1"}, life{"b", "2"}
	type step struct {
		minute   int
		suspects []life
	}
	cases := map[string]struct {
		reason string
		steps  []step
		want   []life
	}{
		"First":       {reason: "a new leader has seen nothing yet", steps: []step{{0, []life{a}}}},
		"Early":       {reason: "a reboot that registers the Node anew takes minutes", steps: []step{{0, []life{a}}, {14, []life{a}}}},
		"Late":        {reason: "gone for the whole grace", steps: []step{{0, []life{a}}, {7, []life{a}}, {15, []life{a}}}, want: []life{a}},
		"Interrupted": {reason: "it was back in between: that machine was not off", steps: []step{{0, []life{a}}, {10, nil}, {12, []life{a}}, {20, []life{a}}}},
		"Each":        {reason: "each has its own time", steps: []step{{0, []life{a}}, {10, []life{a, b}}, {16, []life{a, b}}}, want: []life{a}},
		"SameName":    {reason: "a second life of the name has its own time", steps: []step{{0, []life{a}}, {16, []life{{"a", "2"}}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := absences{}
			start := time.Now()
			var got []life
			for _, s := range tc.steps {
				suspects := map[life]bool{}
				for _, l := range s.suspects {
					suspects[l] = true
				}
				got = seen.look(start.Add(time.Duration(s.minute)*time.Minute), grace, suspects)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(life{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNodesHaveLives(t *testing.T) {
	t.Parallel()
	known := nodes{"a": {uid: "1", linux: true}, "w": {uid: "2"}}
	cases := map[string]struct {
		reason    string
		of        life
		node, has bool
	}{
		"Alive":      {reason: "the same object", of: life{"a", "1"}, node: true, has: true},
		"Replaced":   {reason: "the Node was deleted and registered anew", of: life{"a", "0"}, node: true},
		"Gone":       {reason: "no Node of that name", of: life{"b", "1"}, node: true},
		"Quarantine": {reason: "an entry that is no node's", of: life{"!quarantine", "x"}},
		"DANM":       {reason: "DANM's DanmEps say nothing of a UID: they are not ours to remove", of: life{"b", ""}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.of.ofNode() != tc.node || known.has(tc.of) != tc.has {
				t.Errorf("%s: node %t, known %t", tc.reason, tc.of.ofNode(), known.has(tc.of))
			}
		})
	}
}

// No daemon of ours runs on another operating system: nobody would ever report.
func TestOnlyLinuxIsAwaited(t *testing.T) {
	t.Parallel()
	known := nodes{"b": {linux: true}, "a": {linux: true}, "windows": {}}
	if diff := cmp.Diff([]string{"a", "b"}, known.names()); diff != "" {
		t.Errorf("awaited (-want +got):\n%s", diff)
	}
}

func TestDepartedAreReplaced(t *testing.T) {
	t.Parallel()
	var d departed
	a, b := life{"a", "1"}, life{"b", "2"}
	if got := d.of([]life{a}); got != nil {
		t.Errorf("before the first look %v are gone, want none", got)
	}
	d.set([]life{a})
	d.set([]life{b})
	if diff := cmp.Diff([]life{b}, d.of([]life{a, b}), cmp.AllowUnexported(life{})); diff != "" {
		t.Errorf("a Node that came back counts as gone (-want +got):\n%s", diff)
	}
}
