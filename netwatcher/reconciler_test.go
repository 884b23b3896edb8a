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
	w := newWorld(newNet(1, "a", vlan(5)), newNet(2, "b", vxlan(701)), newNet(3, "c", device("ens6")))
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
	if w.taken() != 6 {
		t.Errorf("a raised NIC and two links, all closed for tags, and nothing the second time: %+v", w.steps)
	}
	if len(w.written) != 1 {
		t.Errorf("the status is written on change only, was written %d times", len(w.written))
	}
}

// One link that cannot be made stops no other, and the status tells of it.
func TestOneFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(newNet(1, "bad", vlan(5)), newNet(2, "good", vlan(6)))
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
	w.change(func(w *world) { delete(w.err, "bad.5") })
	r.reported.writtenAt = time.Time{} // long ago
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := w.written[1].Links[0]; s.State != "Up" || s.Error != "" {
		t.Errorf("status after it was mended: %+v", s)
	}
}

// Without knowing what is wanted or used, nothing is changed.
func TestNetworksUnknown(t *testing.T) {
	t.Parallel()
	for method, reason := range map[string]string{
		"Networks": "an empty cache is not a cluster without networks",
		"Links":    "Pods may be on any link",
		"State":    "what is there is not known",
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.state.Links = []ObservedLink{ours(vlanLink("a.5", "ens4", 5, 1500))}
			w.err[method] = errBroken
			if err := w.reconciler(t).Reconcile(t.Context()); !errors.Is(err, errBroken) {
				t.Errorf("got %v, want %v", err, errBroken)
			}
			if w.taken() > 0 {
				t.Errorf("%s: %+v", reason, w.steps)
			}
		})
	}
}

func TestNodesUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(newNet(1, "b", vxlan(700)))
	w.state.Links = []ObservedLink{ours(vxlanLink("vx_b", "ens4", 700, 1450, "192.0.2.1", "192.0.2.2"))}
	w.err["NodeNetworks"] = errBroken
	if err := w.reconciler(t).Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.taken() > 0 {
		t.Errorf("entries must stay while the other nodes are not known: %+v", w.steps)
	}
}

// A Pod that came between the plan and the removal keeps its link.
func TestPodComesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld()
	link := vlanLink("a.5", "ens4", 5, 1500)
	w.state.Links = []ObservedLink{ours(link)}
	r := w.reconciler(t)
	w.used[link.Identity] = true
	if err := r.applyChange(t.Context(), Change{Op: OpDelete, Link: link}); err != nil {
		t.Fatal(err)
	}
	if w.taken() > 0 {
		t.Errorf("removed under a Pod: %+v", w.steps)
	}
}

// The object was deleted by hand, or could not be written: it is written again.
func TestStatusAgain(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.err["WriteStatus"] = errBroken
	r := w.reconciler(t)
	if err := r.Reconcile(t.Context()); !errors.Is(err, errBroken) {
		t.Errorf("got %v, want %v", err, errBroken)
	}
	w.change(func(w *world) { delete(w.err, "WriteStatus") })
	for _, deleted := range []bool{false, true} {
		if deleted {
			w.change(func(w *world) { w.written = nil })
		}
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(w.written) != 1 {
			t.Errorf("written %d times, want once", len(w.written))
		}
	}
}

// The NIC below a link was renamed: the journal's identity is not the link's any
// more, but the kernel says that something is on it. So it does of a link whose
// Pods another CNI plugin has made.
func TestSlavesKeepALink(t *testing.T) {
	t.Parallel()
	for name, nets := range map[string][]*network.Network{"Unwanted": nil, "OfRenamedNIC": {newNet(1, "a", vlan(5))}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(nets...)
			w.state.NICs[0].Name = "other"
			w.state.Links = []ObservedLink{ours(vlanLink("a.5", "other", 5, 1500))}
			w.slaves = map[string]bool{"a.5": true}
			for _, err := range []error{nil, errBroken} {
				w.err["Slaves"] = err
				if err := w.reconciler(t).Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
				if w.taken() > 0 {
					t.Errorf("changed under slaves: %+v", w.steps)
				}
			}
			links := w.written[0].Links
			i := slices.IndexFunc(links, func(l v1.HostLink) bool { return l.State == v1.LinkChangePending })
			if i < 0 || !strings.Contains(links[i].Error, "it goes when nothing is on it") {
				t.Errorf("nobody is told why the link is still there: %+v", links)
			}
			w.err["Slaves"], w.slaves = nil, nil
			if err := w.reconciler(t).Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(w.links()) > 0 {
				t.Errorf("links nobody is on and nobody needs: %v", w.links())
			}
		})
	}
}

// A Pod that asks while the link goes waits, and gets it anew.
func TestParentWaitsForARemoval(t *testing.T) {
	t.Parallel()
	n := newNet(1, "a", vlan(5))
	w := newWorld(n)
	r := w.reconciler(t)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	link := w.state.Links[0].Spec
	r.applyMu.Lock() // the removal is under way
	if err := r.applyChange(t.Context(), Change{Op: OpDelete, Link: link}); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		name, err := r.Parent(t.Context(), n)
		if err == nil && name != "a.5" {
			err = errors.New(name)
		}
		got <- err
	}()
	r.applyMu.Unlock()
	if err := <-got; err != nil || !slices.Equal(w.links(), []string{"a.5"}) {
		t.Errorf("got %v, links %v, want the link made again", err, w.links())
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
		"NIC":         {reason: "no link needed", net: newNet(2, "n"), want: "ens4"},
		"NICDown":     {reason: "set up first", net: newNet(2, "n", device("ens6")), want: "ens6"},
		"Made":        {reason: "the cache does not have the network yet", net: newNet(2, "n", vlan(7)), want: "n.7"},
		"Rides":       {reason: "the older one's link", net: newNet(2, "n", vlan(5)), want: "old.5"},
		"Kept":        {reason: "a link that Pods are on has another name", net: newNet(2, "n", vlan(5)), used: true, links: []ObservedLink{ours(vlanLink("gone.5", "ens4", 5, 1500))}, want: "gone.5"},
		"NoNIC":       {reason: "named in the error", net: newNet(2, "n", device("ens9")), is: ErrNoNIC},
		"NoNICVLAN":   {reason: "named in the error", net: newNet(2, "n", vlan(7), device("ens9")), is: ErrNoNIC},
		"BridgePort":  {reason: "the bridge gets the frames", net: newNet(2, "n", vlan(7), device("ens7")), is: ErrBridgePort},
		"OtherSlaves": {reason: "the older network's kind stays", net: newNet(2, "n", vlan(5), kind("macvlan")), is: ErrTaken},
		"NoDevice":    {reason: "SR-IOV has no parent", net: newNet(2, "n", kind("sriov")), is: ErrNoLink},
		"Fails":       {reason: "the kernel's words", net: newNet(2, "n", vlan(7)), err: map[string]error{"n.7": errBroken}, is: errBroken},
	}
	for name, tc := range cases {
		for _, after := range []string{"Start", "Round"} {
			t.Run(name+"/After"+after, func(t *testing.T) {
				t.Parallel()
				w := newWorld(old)
				w.state.Links = slices.Clone(tc.links)
				if id, ok := tc.net.Link(); ok && tc.used {
					w.used[id] = true
				}
				maps.Copy(w.err, tc.err)
				r := w.reconciler(t)
				if after == "Round" {
					if err := r.Reconcile(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				before := w.links()
				if err := r.Check(t.Context(), tc.net); !errors.Is(tc.is, errBroken) && !errors.Is(err, tc.is) || !slices.Equal(w.links(), before) {
					t.Errorf("%s: Check: %v, links %v; want %v and %v", tc.reason, err, w.links(), tc.is, before)
				}
				got, err := r.Parent(t.Context(), tc.net)
				if got != tc.want || !errors.Is(err, tc.is) {
					t.Errorf("%s: got %q, %v; want %q, %v", tc.reason, got, err, tc.want, tc.is)
				}
				if err != nil && !strings.Contains(err.Error(), "ClusterNetwork/n") {
					t.Errorf("the error does not name the network: %v", err)
				}
			})
		}
	}
}

// A Pod's wait does not grow with the number of other networks.
func TestParentTakesOwnStepsOnly(t *testing.T) {
	t.Parallel()
	mine := newNet(1, "mine", vlan(5))
	w := newWorld(mine, newNet(2, "a", vlan(6)), newNet(3, "b", vlan(7)))
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
		t.Errorf("a link that is ready was looked up in the kernel %d times", w.reads-reads)
	}
}
