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
	a, b := incarnation{"a", "1"}, incarnation{"b", "2"}
	type step struct {
		minute   int
		suspects []incarnation
	}
	cases := map[string]struct {
		reason string
		steps  []step
		want   []incarnation
	}{
		"First":       {reason: "a new leader has seen nothing yet", steps: []step{{0, []incarnation{a}}}},
		"Early":       {reason: "a reboot that registers the Node anew takes minutes", steps: []step{{0, []incarnation{a}}, {14, []incarnation{a}}}},
		"Late":        {reason: "gone for the whole grace", steps: []step{{0, []incarnation{a}}, {7, []incarnation{a}}, {15, []incarnation{a}}}, want: []incarnation{a}},
		"Interrupted": {reason: "it was back in between: that machine was not off", steps: []step{{0, []incarnation{a}}, {10, nil}, {12, []incarnation{a}}, {20, []incarnation{a}}}},
		"Each":        {reason: "each has its own time", steps: []step{{0, []incarnation{a}}, {10, []incarnation{a, b}}, {16, []incarnation{a, b}}}, want: []incarnation{a}},
		"SameName":    {reason: "a second life of the name has its own time", steps: []step{{0, []incarnation{a}}, {16, []incarnation{{"a", "2"}}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := goneSince{}
			start := time.Now()
			var got []incarnation
			for _, s := range tc.steps {
				suspects := map[incarnation]bool{}
				for _, l := range s.suspects {
					suspects[l] = true
				}
				got = seen.observe(start.Add(time.Duration(s.minute)*time.Minute), grace, suspects)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(incarnation{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNodeIncarnations(t *testing.T) {
	t.Parallel()
	known := nodesByName{"a": {uid: "1", linux: true}, "w": {uid: "2"}}
	cases := map[string]struct {
		reason    string
		of        incarnation
		node, has bool
	}{
		"Alive":      {reason: "the same object", of: incarnation{"a", "1"}, node: true, has: true},
		"Replaced":   {reason: "the Node was deleted and registered anew", of: incarnation{"a", "0"}, node: true},
		"Gone":       {reason: "no Node of that name", of: incarnation{"b", "1"}, node: true},
		"Quarantine": {reason: "an entry that is no node's", of: incarnation{"!quarantine", "x"}},
		"DANM":       {reason: "DANM's DanmEps say nothing of a UID: they are not ours to remove", of: incarnation{"b", ""}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.of.isNode() != tc.node || known.has(tc.of) != tc.has {
				t.Errorf("%s: node %t, known %t", tc.reason, tc.of.isNode(), known.has(tc.of))
			}
		})
	}
}

// No daemon of ours runs on another operating system: nobody would ever report.
func TestOnlyLinuxIsAwaited(t *testing.T) {
	t.Parallel()
	known := nodesByName{"b": {linux: true}, "a": {linux: true}, "windows": {}}
	if diff := cmp.Diff([]string{"a", "b"}, known.linuxNames()); diff != "" {
		t.Errorf("awaited (-want +got):\n%s", diff)
	}
}

func TestGoneIncarnationsAreReplaced(t *testing.T) {
	t.Parallel()
	var d goneIncarnations
	a, b := incarnation{"a", "1"}, incarnation{"b", "2"}
	if got := d.intersect([]incarnation{a}); got != nil {
		t.Errorf("before the first look %v are gone, want none", got)
	}
	d.set([]incarnation{a})
	d.set([]incarnation{b})
	if diff := cmp.Diff([]incarnation{b}, d.intersect([]incarnation{a, b}), cmp.AllowUnexported(incarnation{})); diff != "" {
		t.Errorf("a Node that came back counts as gone (-want +got):\n%s", diff)
	}
}
