// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNodeIncarnations(t *testing.T) {
	t.Parallel()
	known := nodesByName{"a": {uid: "1", linux: true}, "w": {uid: "2"}}
	cases := map[string]struct {
		reason    string
		of        incarnation
		node, has bool
	}{
		"Alive":      {reason: "The Node is the same object.", of: incarnation{"a", "1"}, node: true, has: true},
		"Replaced":   {reason: "The Node was deleted and registered again.", of: incarnation{"a", "0"}, node: true},
		"Gone":       {reason: "There is no Node of that name.", of: incarnation{"b", "1"}, node: true},
		"Quarantine": {reason: "The entry of quarantined addresses is no Node's.", of: incarnation{"!quarantine", "x"}},
		"DANM":       {reason: "DANM's DanmEps have no UID, and this controller must not remove them.", of: incarnation{"b", ""}},
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

// Our daemon runs on Linux only: no other node would ever report.
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
		t.Errorf("before the first sweep %v are gone, want none", got)
	}
	d.set([]incarnation{a})
	d.set([]incarnation{b})
	if diff := cmp.Diff([]incarnation{b}, d.intersect([]incarnation{a, b}), cmp.AllowUnexported(incarnation{})); diff != "" {
		t.Errorf("a Node that came back counts as gone (-want +got):\n%s", diff)
	}
}
