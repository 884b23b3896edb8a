// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Each way in which a link is not as the networks need it has its state, and a text
// that says what to do.
func TestLinkRows(t *testing.T) {
	t.Parallel()
	storage := vlanLink("storage.500", "ens4", 500, 1500)
	backend := vxlanLink("vx_backend", "ens4", 700, 1450, "192.0.2.1")
	with := func(s Spec, change func(*Spec)) Spec { change(&s); return s }
	down := host().NICs
	down[0].NoCarrier = true
	cases := map[string]struct {
		reason string
		want   *DesiredLink
		state  *State
		failed error
		row    v1.HostLink
		says   string
	}{
		"Up": {
			reason: "as planned", want: &DesiredLink{Spec: storage}, state: host(ours(storage)),
			row: v1.HostLink{Name: "storage.500", Identity: "vlan/ens4/500", Parent: "ens4", MTU: 1500, State: v1.LinkUp},
		},
		"VTEP": {
			reason: "others send to it", want: &DesiredLink{Spec: backend}, state: host(ours(backend)),
			row: v1.HostLink{Name: "vx_backend", Identity: "vxlan/700", Parent: "ens4", MTU: 1450, VTEP: "192.0.2.1", State: v1.LinkUp},
		},
		"OlderName": {
			reason: "Pods are on it; which name it has harms nobody",
			want:   &DesiredLink{Spec: with(storage, func(s *Spec) { s.Name = "new.500" })}, state: host(ours(storage)),
			row: v1.HostLink{Name: "storage.500", Identity: "vlan/ens4/500", Parent: "ens4", MTU: 1500, State: v1.LinkUp},
		},
		"Narrower": {
			reason: "the NIC's MTU was lowered", want: &DesiredLink{Spec: with(storage, func(s *Spec) { s.MTU = 1400 })}, state: host(ours(storage)),
			row:  v1.HostLink{Name: "storage.500", Identity: "vlan/ens4/500", Parent: "ens4", MTU: 1500, State: v1.LinkChangePending},
			says: "mtu stays 1500 while Pods are on it, then it is 1400",
		},
		"Elsewhere": {
			reason: "another host_device", want: &DesiredLink{Spec: with(backend, func(s *Spec) { s.Device = "ens5" })}, state: host(ours(backend)),
			row:  v1.HostLink{Name: "vx_backend", Identity: "vxlan/700", Parent: "ens5", MTU: 1450, VTEP: "192.0.2.1", State: v1.LinkChangePending},
			says: "it stays on ens4 while Pods are on it, then it moves to ens5",
		},
		"OtherFamily": {
			reason: "the NIC has IPv6 only now",
			want:   &DesiredLink{Spec: with(backend, func(s *Spec) { s.Local = ipList("2001:db8::1")[0] })}, state: host(ours(backend)),
			row:  v1.HostLink{Name: "vx_backend", Identity: "vxlan/700", Parent: "ens4", MTU: 1450, VTEP: "192.0.2.1", State: v1.LinkChangePending},
			says: "it receives at 192.0.2.1 while Pods are on it, then at 2001:db8::1",
		},
		"NoCarrier": {
			reason: "the link is up, and leads nowhere", want: &DesiredLink{Spec: storage}, state: &State{NICs: down, Links: []ObservedLink{ours(storage)}},
			row:  v1.HostLink{Name: "storage.500", Identity: "vlan/ens4/500", Parent: "ens4", MTU: 1500, State: v1.LinkDown},
			says: "ens4 has no carrier: is its cable in",
		},
		"CardWithoutCarrier": {
			reason: "a network on the NIC itself",
			want:   &DesiredLink{Spec: Spec{Identity: network.Link{Device: "ens4"}, Name: "ens4", Device: "ens4"}}, state: &State{NICs: down},
			row:  v1.HostLink{Name: "ens4", Identity: "nic/ens4", MTU: 1500, State: v1.LinkDown},
			says: "ens4 has no carrier",
		},
		"Card": {
			reason: "nothing to make", want: &DesiredLink{Spec: Spec{Identity: network.Link{Device: "ens4"}, Name: "ens4", Device: "ens4"}}, state: host(),
			row: v1.HostLink{Name: "ens4", Identity: "nic/ens4", MTU: 1500, State: v1.LinkUp},
		},
		"LongError": {
			reason: "a thousand of them must fit into one object", want: &DesiredLink{Spec: storage}, state: host(),
			failed: errors.New(strings.Repeat("é", 1000)),
			row:    v1.HostLink{Name: "storage.500", Identity: "vlan/ens4/500", Parent: "ens4", State: v1.LinkError},
			says:   "éé",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := &Plan{Links: []DesiredLink{*tc.want}}
			if tc.want.Identity.IsNIC() {
				plan = &Plan{DirectNICs: []DesiredLink{*tc.want}}
			}
			got := newLinkRows(plan, tc.state, Failures{tc.want.Identity: tc.failed}).build()
			if len(got) != 1 {
				t.Fatalf("%s: %d rows: %+v", tc.reason, len(got), got)
			}
			if says := got[0].Error; !strings.Contains(says, tc.says) || (says == "") != (tc.says == "") || len(says) > maxErrorLen+3 {
				t.Errorf("%s: the row says %q, want %q", tc.reason, says, tc.says)
			}
			got[0].Error = ""
			if diff := cmp.Diff(tc.row, got[0]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
