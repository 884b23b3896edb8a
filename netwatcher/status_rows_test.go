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

// Each difference between a link and its plan has a state, and an error that names the remedy.
func TestLinkRows(t *testing.T) {
	t.Parallel()
	storage := vlanLink("storage.500", "ens4", 500, 1500)
	backend := vxlanLink("vx_backend", "ens4", 700, 1450, "192.0.2.1")
	with := func(s Spec, change func(*Spec)) Spec { change(&s); return s }
	down := host().NICs
	down[0].NoCarrier = true
	cases := map[string]struct {
		reason   string
		want     *DesiredLink
		state    *State
		failed   error
		row      v1.HostLink
		contains string
	}{
		"Up": {
			reason: "The link is as planned.", want: &DesiredLink{Spec: storage}, state: host(managed(storage)),
			row: v1.HostLink{Name: "storage.500", Identity: "vlan/ens4/500", Parent: "ens4", MTU: 1500, State: v1.LinkUp},
		},
		"VTEP": {
			reason: "Other nodes send to the VTEP.", want: &DesiredLink{Spec: backend}, state: host(managed(backend)),
			row: v1.HostLink{Name: "vx_backend", Identity: "vxlan/700", Parent: "ens4", MTU: 1450, VTEP: "192.0.2.1", State: v1.LinkUp},
		},
		"OlderName": {
			reason: "The link keeps its name while Pods are on it.",
			want:   &DesiredLink{Spec: with(storage, func(s *Spec) { s.Name = "new.500" })}, state: host(managed(storage)),
			row: v1.HostLink{Name: "storage.500", Identity: "vlan/ens4/500", Parent: "ens4", MTU: 1500, State: v1.LinkUp},
		},
		"SmallerMTU": {
			reason: "The NIC's MTU was decreased.", want: &DesiredLink{Spec: with(storage, func(s *Spec) { s.MTU = 1400 })}, state: host(managed(storage)),
			row:      v1.HostLink{Name: "storage.500", Identity: "vlan/ens4/500", Parent: "ens4", MTU: 1500, State: v1.LinkChangePending},
			contains: "mtu stays 1500 while Pods use the link, then it is 1400",
		},
		"OtherDevice": {
			reason: "The network has another host_device.", want: &DesiredLink{Spec: with(backend, func(s *Spec) { s.Device = "ens5" })}, state: host(managed(backend)),
			row:      v1.HostLink{Name: "vx_backend", Identity: "vxlan/700", Parent: "ens5", MTU: 1450, VTEP: "192.0.2.1", State: v1.LinkChangePending},
			contains: "the link stays on ens4 while Pods use it, then it moves to ens5",
		},
		"OtherFamily": {
			reason: "The NIC has only IPv6 addresses now.",
			want:   &DesiredLink{Spec: with(backend, func(s *Spec) { s.Local = ipList("2001:db8::1")[0] })}, state: host(managed(backend)),
			row:      v1.HostLink{Name: "vx_backend", Identity: "vxlan/700", Parent: "ens4", MTU: 1450, VTEP: "192.0.2.1", State: v1.LinkChangePending},
			contains: "the link receives at 192.0.2.1 while Pods use it, then at 2001:db8::1",
		},
		"NoCarrier": {
			reason: "The link is up and its NIC has no carrier.", want: &DesiredLink{Spec: storage}, state: &State{NICs: down, Links: []ObservedLink{managed(storage)}},
			row:      v1.HostLink{Name: "storage.500", Identity: "vlan/ens4/500", Parent: "ens4", MTU: 1500, State: v1.LinkDown},
			contains: "ens4 has no carrier: check its cable",
		},
		"NICWithoutCarrier": {
			reason: "The network uses the NIC itself.",
			want:   &DesiredLink{Spec: Spec{Identity: network.Link{Device: "ens4"}, Name: "ens4", Device: "ens4"}}, state: &State{NICs: down},
			row:      v1.HostLink{Name: "ens4", Identity: "nic/ens4", MTU: 1500, State: v1.LinkDown},
			contains: "ens4 has no carrier",
		},
		"NIC": {
			reason: "A NIC is not created.", want: &DesiredLink{Spec: Spec{Identity: network.Link{Device: "ens4"}, Name: "ens4", Device: "ens4"}}, state: host(),
			row: v1.HostLink{Name: "ens4", Identity: "nic/ens4", MTU: 1500, State: v1.LinkUp},
		},
		"LongError": {
			reason: "An object must have room for a thousand errors.", want: &DesiredLink{Spec: storage}, state: host(),
			failed:   errors.New(strings.Repeat("é", 1000)),
			row:      v1.HostLink{Name: "storage.500", Identity: "vlan/ens4/500", Parent: "ens4", State: v1.LinkError},
			contains: "éé",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := &Plan{Links: []DesiredLink{*tc.want}}
			if tc.want.Identity.IsNIC() {
				plan = &Plan{DirectNICs: []DesiredLink{*tc.want}}
			}
			got := newLinkRows(plan, tc.state, linkFailures{tc.want.Identity: tc.failed}).build()
			if len(got) != 1 {
				t.Fatalf("%s %d rows: %+v", tc.reason, len(got), got)
			}
			if text := got[0].Error; !strings.Contains(text, tc.contains) || (text == "") != (tc.contains == "") || len(text) > maxErrorLen+3 {
				t.Errorf("%s The row's error is %q, want %q", tc.reason, text, tc.contains)
			}
			got[0].Error = ""
			if diff := cmp.Diff(tc.row, got[0]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
