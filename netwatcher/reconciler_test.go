// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

var errBroken = errors.New("broken")

func TestReconcileTwice(t *testing.T) {
	t.Parallel()
	w := newFakeNode(newNet(1, "a", vlan(5)), newNet(2, "b", vxlan(701)), newNet(3, "c", device("ens6")))
	w.nodes = []v1.NodeNetwork{node("other", v1.NIC{Name: "ens4", Addresses: []string{"192.0.2.2/24"}})}
	r := w.reconciler(t)
	for range 2 {
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"a.5", "vx_b"}, w.links()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if w.changeCount() != 6 {
		t.Errorf("want a NIC set up, two links created, three tag filters, and no change the second time: %+v", w.changes)
	}
	if len(w.written) != 1 {
		t.Errorf("the status was written %d times, want once", len(w.written))
	}
}

// A link that cannot be created does not affect other links, and the status reports it.
func TestOneFailure(t *testing.T) {
	t.Parallel()
	w := newFakeNode(newNet(1, "bad", vlan(5)), newNet(2, "good", vlan(6)))
	w.err["bad.5"] = errBroken
	r := w.reconciler(t)
	if err := r.Reconcile(t.Context()); !errors.Is(err, errBroken) {
		t.Errorf("got %v, want %v", err, errBroken)
	}
	if diff := cmp.Diff([]string{"good.6"}, w.links()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if s := w.written[0].Links[0]; s.State != "Error" || !strings.Contains(s.Error, "create link bad.5: broken") {
		t.Errorf("status of the failed link: %+v", s)
	}
	w.change(func(w *fakeNode) { delete(w.err, "bad.5") })
	r.reporter.writtenAt = time.Time{} // long ago
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := w.written[1].Links[0]; s.State != "Up" || s.Error != "" {
		t.Errorf("status after the failure ended: %+v", s)
	}
}

// If networks, Pods or links cannot be read, nothing is changed.
func TestNetworksUnknown(t *testing.T) {
	t.Parallel()
	for method, reason := range map[string]string{
		"Networks": "Networks that are not known may need the link.",
		"Links":    "Pods may be on any link.",
		"State":    "The existing links are not known.",
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			w := newFakeNode()
			w.state.Links = []ObservedLink{managed(vlanLink("a.5", "ens4", 5, 1500))}
			w.err[method] = errBroken
			if err := w.reconciler(t).Reconcile(t.Context()); !errors.Is(err, errBroken) {
				t.Errorf("got %v, want %v", err, errBroken)
			}
			if w.changeCount() > 0 {
				t.Errorf("%s Changes: %+v", reason, w.changes)
			}
		})
	}
}

func TestNodesUnknown(t *testing.T) {
	t.Parallel()
	w := newFakeNode(newNet(1, "b", vxlan(700)))
	w.state.Links = []ObservedLink{managed(vxlanLink("vx_b", "ens4", 700, 1450, "192.0.2.1", "192.0.2.2"))}
	w.err["NodeNetworks"] = errBroken
	if err := w.reconciler(t).Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.changeCount() > 0 {
		t.Errorf("entries must stay while the other nodes are not known: %+v", w.changes)
	}
}

// A Pod that attaches between the plan and the deletion keeps its link.
func TestPodKeepsItsLink(t *testing.T) {
	t.Parallel()
	w := newFakeNode()
	link := vlanLink("a.5", "ens4", 5, 1500)
	w.state.Links = []ObservedLink{managed(link)}
	r := w.reconciler(t)
	w.used[link.Identity] = true
	if err := r.applier.applyChange(t.Context(), Change{Op: OpDelete, Link: link}); err != nil {
		t.Fatal(err)
	}
	if w.changeCount() > 0 {
		t.Errorf("a link with a Pod was changed: %+v", w.changes)
	}
}

// A status that could not be written, or whose object was deleted, is written again.
func TestStatusIsWrittenAgain(t *testing.T) {
	t.Parallel()
	w := newFakeNode()
	w.err["WriteStatus"] = errBroken
	r := w.reconciler(t)
	if err := r.Reconcile(t.Context()); !errors.Is(err, errBroken) {
		t.Errorf("got %v, want %v", err, errBroken)
	}
	w.change(func(w *fakeNode) { delete(w.err, "WriteStatus") })
	for _, deleted := range []bool{false, true} {
		if deleted {
			w.change(func(w *fakeNode) { w.written = nil })
		}
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(w.written) != 1 {
			t.Errorf("written %d times, want once", len(w.written))
		}
	}
}

// After the NIC below a link was renamed, the identity in the journal is not the link's any more.
// The link stays, as the kernel reports another link on top. The same applies to a link whose
// Pods another CNI plugin attached.
func TestSlavesKeepALink(t *testing.T) {
	t.Parallel()
	for name, nets := range map[string][]*network.Network{"NotNeeded": nil, "RenamedNIC": {newNet(1, "a", vlan(5))}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeNode(nets...)
			w.state.NICs[0].Name = "other"
			w.state.Links = []ObservedLink{managed(vlanLink("a.5", "other", 5, 1500))}
			w.slaves = map[string]bool{"a.5": true}
			for _, err := range []error{nil, errBroken} {
				w.err["Slaves"] = err
				if err := w.reconciler(t).Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
				if w.changeCount() > 0 {
					t.Errorf("a link with slaves was changed: %+v", w.changes)
				}
			}
			links := w.written[0].Links
			i := slices.IndexFunc(links, func(l v1.HostLink) bool { return l.State == v1.LinkChangePending })
			if i < 0 || !strings.Contains(links[i].Error, "it is deleted when nothing uses it") {
				t.Errorf("the status does not explain why the link stays: %+v", links)
			}
			w.err["Slaves"], w.slaves = nil, nil
			if err := w.reconciler(t).Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(w.links()) > 0 {
				t.Errorf("unused links that no network needs: %v", w.links())
			}
		})
	}
}

// Parent waits for the deletion of the link, and creates it again.
func TestParentWaitsForDeletion(t *testing.T) {
	t.Parallel()
	n := newNet(1, "a", vlan(5))
	w := newFakeNode(n)
	r := w.reconciler(t)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	link := w.state.Links[0].Spec
	got := make(chan error, 1)
	err := r.applier.do(func(l *lockedApplier) error {
		err := l.applyChange(t.Context(), Change{Op: OpDelete, Link: link})
		go func() {
			name, err := r.Parent(t.Context(), n)
			if err == nil && name != "a.5" {
				err = errors.New(name)
			}
			got <- err
		}()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil || !slices.Equal(w.links(), []string{"a.5"}) {
		t.Errorf("got %v, links %v, want the link created again", err, w.links())
	}
}

func TestParent(t *testing.T) {
	t.Parallel()
	old := newNet(1, "old", vlan(5))
	cases := map[string]struct {
		reason string
		net    *network.Network
		links  []ObservedLink
		used   bool
		err    map[string]error
		want   string
		is     error
	}{
		"NIC":         {reason: "The network needs no link.", net: newNet(2, "n"), want: "ens4"},
		"NICDown":     {reason: "The NIC is set up first.", net: newNet(2, "n", device("ens6")), want: "ens6"},
		"New":         {reason: "The cache does not have the network yet.", net: newNet(2, "n", vlan(7)), want: "n.7"},
		"Shared":      {reason: "The older network's link is shared.", net: newNet(2, "n", vlan(5)), want: "old.5"},
		"Kept":        {reason: "A link with Pods keeps another name.", net: newNet(2, "n", vlan(5)), used: true, links: []ObservedLink{managed(vlanLink("gone.5", "ens4", 5, 1500))}, want: "gone.5"},
		"NoNIC":       {reason: "The node has no such NIC.", net: newNet(2, "n", device("ens9")), is: errNoNIC},
		"NoNICVLAN":   {reason: "The node has no such NIC.", net: newNet(2, "n", vlan(7), device("ens9")), is: errNoNIC},
		"BridgePort":  {reason: "The bridge gets the frames.", net: newNet(2, "n", vlan(7), device("ens7")), is: errBridgePort},
		"OtherSlaves": {reason: "The older network determines the kind of slaves.", net: newNet(2, "n", vlan(5), kind("macvlan")), is: errTaken},
		"NoDevice":    {reason: "An SR-IOV network has no parent.", net: newNet(2, "n", kind("sriov")), is: errNoLink},
		"Fails":       {reason: "The kernel's error is returned.", net: newNet(2, "n", vlan(7)), err: map[string]error{"n.7": errBroken}, is: errBroken},
	}
	for name, tc := range cases {
		for _, after := range []string{"Start", "Reconcile"} {
			t.Run(name+"/After"+after, func(t *testing.T) {
				t.Parallel()
				w := newFakeNode(old)
				w.state.Links = slices.Clone(tc.links)
				if id, ok := tc.net.Link(); ok && tc.used {
					w.used[id] = true
				}
				maps.Copy(w.err, tc.err)
				r := w.reconciler(t)
				if after == "Reconcile" {
					if err := r.Reconcile(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				before := w.links()
				if err := r.Check(t.Context(), tc.net); !errors.Is(tc.is, errBroken) && !errors.Is(err, tc.is) || !slices.Equal(w.links(), before) {
					t.Errorf("%s Check: %v, links %v; want %v and %v", tc.reason, err, w.links(), tc.is, before)
				}
				got, err := r.Parent(t.Context(), tc.net)
				if got != tc.want || !errors.Is(err, tc.is) {
					t.Errorf("%s got %q, %v; want %q, %v", tc.reason, got, err, tc.want, tc.is)
				}
				if err != nil && !strings.Contains(err.Error(), "ClusterNetwork/n") {
					t.Errorf("the error does not name the network: %v", err)
				}
			})
		}
	}
}

// Parent applies the changes of one link only: a Pod does not wait for other networks.
func TestParentAppliesOwnChangesOnly(t *testing.T) {
	t.Parallel()
	mine := newNet(1, "mine", vlan(5))
	w := newFakeNode(mine, newNet(2, "a", vlan(6)), newNet(3, "b", vlan(7)))
	r := w.reconciler(t)
	if _, err := r.Parent(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"mine.5"}, w.links()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	reads := w.reads
	for range 10 {
		if _, err := r.Parent(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
	}
	if w.reads != reads {
		t.Errorf("a ready link was read from the kernel %d times", w.reads-reads)
	}
}
