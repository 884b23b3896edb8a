// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// While some networks cannot be read, those that are known get their links, half-made
// ones go, and what the others may need stays.
func TestSomeNetworksAreNotKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(newNet(1, "a", vlan(5)))
	half := ours(vlanLink("half.7", "ens4", 7, 1500))
	half.Unfinished = true
	w.state.Links = []ObservedLink{ours(vlanLink("ens4.6", "ens4", 6, 1500)), half}
	w.err["Networks"] = fmt.Errorf("list: %w", ErrNetworksIncomplete)
	r := w.reconciler(t)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a.5", "ens4.6"}, w.links()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	w.change(func(w *world) { delete(w.err, "Networks") })
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a.5"}, w.links()); diff != "" {
		t.Errorf("when all are known: -want +got\n%s", diff)
	}
}
