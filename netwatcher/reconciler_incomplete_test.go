// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// While some networks cannot be read, the known ones get their links, unfinished links are deleted,
// and links that the other networks may need stay.
func TestSomeNetworksAreNotKnown(t *testing.T) {
	t.Parallel()
	w := newFakeNode(newNet(1, "a", vlan(5)))
	unfinished := managed(vlanLink("half.7", "ens4", 7, 1500))
	unfinished.Unfinished = true
	w.state.Links = []ObservedLink{managed(vlanLink("ens4.6", "ens4", 6, 1500)), unfinished}
	w.err["Networks"] = fmt.Errorf("list: %w", ErrNetworksIncomplete)
	r := w.reconciler(t)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a.5", "ens4.6"}, w.links()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	w.change(func(w *fakeNode) { delete(w.err, "Networks") })
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a.5"}, w.links()); diff != "" {
		t.Errorf("after all networks are known: -want +got\n%s", diff)
	}
}
