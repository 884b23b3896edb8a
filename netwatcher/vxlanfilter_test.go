// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

func TestFilter(t *testing.T) {
	t.Parallel()
	peers := VTEPs{"ens4": ipList("192.0.2.2", "2001:db8::9"), "ens5": ipList("2001:db8:5::2"), "ens9": ipList("203.0.113.2")}
	backend := vxlanLink("vx_backend", "ens4", 700, 1450, "192.0.2.1", "192.0.2.7")
	senders := func(link string, vteps ...string) (all []Sender) {
		for _, a := range ipList(vteps...) {
			all = append(all, Sender{Link: link, VTEP: a})
		}
		return all
	}
	four := VXLANFilter{
		VNIs: []int{700}, Receivers: []Receiver{{700, "ens4"}}, Senders: senders("ens4", "192.0.2.2"),
		VTEPs: ipList("192.0.2.2", "2001:db8::9"),
	}
	cases := map[string]struct {
		reason string
		nets   []*network.Network
		state  *State
		peers  VTEPs
		want   VXLANFilter
	}{
		"NoVXLAN": {reason: "There is no VXLAN to filter.", nets: []*network.Network{newNet(1, "storage", vlan(5)), newNet(2, "plain")}, peers: peers},
		"IPv4":    {reason: "The known VTEPs of the family may send on the NIC.", nets: []*network.Network{newNet(1, "backend", vxlan(700))}, peers: peers, want: four},
		"IPv6": {
			reason: "The NIC's address determines the family.",
			nets:   []*network.Network{newNet(1, "six", vxlan(800), device("ens5"))}, peers: peers,
			want: VXLANFilter{VNIs: []int{800}, Receivers: []Receiver{{800, "ens5"}}, Senders: senders("ens5", "2001:db8:5::2"), VTEPs: ipList("2001:db8:5::2")},
		},
		"NoNICHere": {
			reason: "The node has no such NIC, and its Pods must not reach other nodes' VXLAN.",
			nets:   []*network.Network{newNet(1, "far", vxlan(900), device("ens9"))}, peers: peers,
			want: VXLANFilter{VNIs: []int{900}, VTEPs: ipList("203.0.113.2")},
		},
		"PeersUnknown": {
			reason: "Before the API server has answered, the link's present peers may send.",
			nets:   []*network.Network{newNet(1, "backend", vxlan(700))}, state: host(managed(backend)),
			want: VXLANFilter{VNIs: []int{700}, Receivers: []Receiver{{700, "ens4"}}, Senders: senders("ens4", "192.0.2.7"), VTEPs: ipList("192.0.2.7")},
		},
		"NotWanted": {
			reason: "The link has Pods on it, or its network is not known yet.", state: host(managed(backend)), peers: peers,
			want: VXLANFilter{VNIs: []int{700}, Receivers: []Receiver{{700, "ens4"}}, Senders: senders("ens4", "192.0.2.7"), VTEPs: ipList("192.0.2.7")},
		},
		"Moving": {
			reason: "The link stays on its NIC while Pods are on it.",
			nets:   []*network.Network{newNet(1, "backend", vxlan(700), device("ens5"))}, state: host(managed(backend)), peers: peers,
			want: VXLANFilter{
				VNIs: []int{700}, Receivers: []Receiver{{700, "ens4"}, {700, "ens5"}},
				Senders: slices.Concat(senders("ens4", "192.0.2.7"), senders("ens5", "2001:db8:5::2")),
				VTEPs:   ipList("192.0.2.7", "2001:db8:5::2"),
			},
		},
		"Foreign": {
			reason: "Another program's VXLAN is not filtered.",
			nets:   []*network.Network{newNet(1, "backend", vxlan(700))}, state: host(unmanaged(backend)), peers: peers,
		},
		"Unassigned": {
			reason: "A tenant's ID that was not assigned must not filter another program's VXLAN.",
			nets:   []*network.Network{newNet(1, "spy", tenants, kind("macvlan"), vxlan(4096))}, peers: peers,
		},
		"VRF": {
			reason: "Packets of the NIC arrive on its VRF.",
			nets:   []*network.Network{newNet(1, "backend", vxlan(700))}, peers: peers,
			state: &State{NICs: []NIC{{
				Name: "ens4", MTU: 1500, Up: true, Master: "blue", MasterKind: "vrf", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")},
			}}},
			want: VXLANFilter{VNIs: []int{700}, Receivers: []Receiver{{700, "blue"}}, Senders: senders("blue", "192.0.2.2"), VTEPs: four.VTEPs},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := tc.state
			if state == nil {
				state = host()
			}
			got := newVXLANFilter(Desired(tc.nets, state, tc.peers), state, tc.peers)
			if diff := cmp.Diff(tc.want, got, opts); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// The filter is written before the link is created, also by a Pod's ADD.
func TestGuardComesFirst(t *testing.T) {
	t.Parallel()
	n := newNet(1, "backend", vxlan(700))
	for name, do := range map[string]func(*Reconciler) error{
		"Reconcile": func(r *Reconciler) error { return r.Reconcile(t.Context()) },
		"Pod":       func(r *Reconciler) error { _, err := r.Parent(t.Context(), n); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeNode(n)
			r := w.reconciler(t)
			r.Kernel = filterCheckingKernel{w, t}
			if err := do(r); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// filterCheckingKernel fails the test if a VXLAN is created before its filter is written.
type filterCheckingKernel struct {
	*fakeNode
	tb testing.TB
}

func (g filterCheckingKernel) Apply(ctx context.Context, c Change) error {
	g.change(func(w *fakeNode) {
		if c.Op == OpCreate && !slices.Contains(w.filter.VNIs, c.Link.Identity.VXLAN) {
			g.tb.Errorf("%s is created while the filter is %+v", c.Link.Name, w.filter)
		}
	})
	return g.fakeNode.Apply(ctx, c)
}

func TestIsolated(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason     string
		err        error
		nets       []*network.Network
		status     metav1.ConditionStatus
		because    string
		roundFails bool
		untag      error
	}{
		"NoVXLAN":     {reason: "Without a VXLAN no host can send into one.", status: metav1.ConditionTrue, because: "NoVXLAN"},
		"Filtered":    {reason: "The filter is in place.", nets: []*network.Network{newNet(1, "a", vxlan(700))}, status: metav1.ConditionTrue, because: "FilterInPlace"},
		"NoFilter":    {reason: "Networks work without the filter, and the condition reports it.", nets: []*network.Network{newNet(1, "a", vxlan(700))}, err: fmt.Errorf("x: %w", ErrFilterUnsupported), status: metav1.ConditionFalse, because: "FilterNotSupported"},
		"Transient":   {reason: "The error causes a retry.", nets: []*network.Network{newNet(1, "a", vxlan(700))}, err: errBroken, status: metav1.ConditionFalse, because: "FilterFailed", roundFails: true},
		"NoTagFilter": {reason: "Networks work without the filter, and the condition reports it.", nets: []*network.Network{newNet(1, "a", vlan(5))}, untag: fmt.Errorf("x: %w", ErrTagFilterUnsupported), status: metav1.ConditionFalse, because: "TagsNotFiltered"},
		"TagsPass":    {reason: "The error causes a retry.", nets: []*network.Network{newNet(1, "a", vxlan(700))}, untag: errBroken, status: metav1.ConditionFalse, because: "TagsNotFiltered", roundFails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeNode(tc.nets...)
			w.err["Firewall"], w.err[string(OpFilterTags)] = tc.err, tc.untag
			if err := w.reconciler(t).Reconcile(t.Context()); errors.Is(err, errBroken) != tc.roundFails || err != nil && !tc.roundFails {
				t.Errorf("%s Reconcile returned %v", tc.reason, err)
			}
			if len(w.links()) != len(tc.nets) {
				t.Errorf("%s links %v", tc.reason, w.links())
			}
			c := meta.FindStatusCondition(w.written[0].Conditions, ConditionIsolated)
			if c == nil || c.Status != tc.status || c.Reason != tc.because || c.Message == "" {
				t.Errorf("%s got %+v", tc.reason, c)
			}
			if len(w.written[0].Links) > 0 && w.written[0].Links[0].State != v1.LinkUp {
				t.Errorf("%s %+v", tc.reason, w.written[0].Links)
			}
		})
	}
}

// lateKernel calls add once, after a reconciliation has read its state.
type lateKernel struct {
	*fakeNode
	done atomic.Bool
	add  func()
}

func (l *lateKernel) State(ctx context.Context) (*State, error) {
	s, err := l.fakeNode.State(ctx)
	if l.done.CompareAndSwap(false, true) {
		l.add()
	}
	return s, err
}

// A reconciliation that read the networks before a Pod's network was known does not remove the
// filter of the Pod's VXLAN.
func TestReconcileBesideAPod(t *testing.T) {
	t.Parallel()
	w := newFakeNode(newNet(1, "known", vxlan(701)))
	r := w.reconciler(t)
	pod := make(chan error, 1)
	r.Kernel = &lateKernel{fakeNode: w, add: func() {
		ended := make(chan struct{})
		go func() {
			_, err := r.Parent(t.Context(), newNet(2, "fresh", vxlan(700)))
			pod <- err
			close(ended)
		}()
		select { // the Pod waits for the reconciliation, or has its link
		case <-ended:
		case <-time.After(200 * time.Millisecond):
		}
	}}
	if err := errors.Join(r.Reconcile(t.Context()), <-pod); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{700, 701}, w.filter.VNIs); diff != "" {
		t.Errorf("links %v, VNIs of the filter: -want +got\n%s", w.links(), diff)
	}
}
