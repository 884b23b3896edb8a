// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
)

// What is sent for a setting is what the kernel reports for it: the structures are the same.
func TestVFSettingsRoundTrip(t *testing.T) {
	t.Parallel()
	own := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	cases := map[string]struct {
		reason string
		want   VFSettings
	}{
		"All": {"Each setting has a structure of its own.", VFSettings{
			MAC: own, VLAN: &VFVLAN{ID: 500, QoS: 3, Protocol: VLAN8021AD}, SpoofCheck: new(true), Trust: new(false),
			LinkState: new(LinkStateDisable), Rate: &VFRate{Min: 1, Max: 1000},
		}},
		"CustomerVLAN": {"Most drivers know the older structure only.", VFSettings{MAC: own, VLAN: &VFVLAN{ID: 4094, QoS: 7}}},
		"NoVLAN":       {"A VLAN is removed.", VFSettings{MAC: own, VLAN: &VFVLAN{}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			info := nl.NewRtAttr(nl.IFLA_VF_INFO, nil)
			for _, o := range tc.want.options(5, &VFSettings{}) {
				info.AddChild(o.attr)
			}
			vf, got, err := parseVF(info.Serialize()[4:])
			if err != nil || vf != 5 {
				t.Fatalf("%s function %d, %v", tc.reason, vf, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.reason, diff)
			}
			if again := tc.want.options(5, &got); len(again) > 0 {
				t.Errorf("%s settings that are in place are sent again: %v", tc.reason, again)
			}
		})
	}
}

// Drivers leave out what they do not support: the kernel then reports -1, or no attribute.
func TestVFSettingsNotReported(t *testing.T) {
	t.Parallel()
	info := nl.NewRtAttr(nl.IFLA_VF_INFO, nil)
	for _, kind := range []int{nl.IFLA_VF_SPOOFCHK, nl.IFLA_VF_TRUST} {
		info.AddRtAttr(kind, binary.NativeEndian.AppendUint32(words(1), ^uint32(0)))
	}
	info.AddRtAttr(nl.IFLA_VF_RATE, words(1)) // too short
	_, got, err := parseVF(info.Serialize()[4:])
	if diff := cmp.Diff(VFSettings{}, got); err != nil || diff != "" {
		t.Errorf("got %v, -want +got\n%s", err, diff)
	}
}

// A VLAN without a protocol has the default one, also in the report of a kernel.
func TestVLANProtocolHasDefault(t *testing.T) {
	t.Parallel()
	want := VFSettings{VLAN: &VFVLAN{ID: 500}}
	if o := want.options(0, &VFSettings{VLAN: &VFVLAN{ID: 500, Protocol: VLAN8021Q}}); len(o) > 0 {
		t.Errorf("the VLAN is sent again: %v", o)
	}
	if o := want.options(0, &VFSettings{VLAN: &VFVLAN{ID: 500, Protocol: VLAN8021AD}}); len(o) != 1 {
		t.Errorf("the protocol is not changed: %v", o)
	}
}

// DEL ends without settings that protect no other Pod. A driver that resets the function can still take them.
func TestMaySkip(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		value  any
		answer error
		want   bool
	}{
		"NoLink":   {"The cable can be out for days.", VFRate{Max: 50}, ErrNoLink, true},
		"Rate":     {"The port has become slower than the former rate.", VFRate{Max: 50}, ErrRejected, true},
		"RateBusy": {"The driver has not decided.", VFRate{Max: 50}, ErrFunctionReset, false},
		"NoMAC":    {"Some drivers cannot forget a MAC.", macAddress{}, ErrRejected, true},
		"MACBusy":  {"The driver has not decided.", macAddress{}, ErrFunctionReset, false},
		"MAC":      {"Frames to the former MAC would reach the function.", macAddress{2}, ErrRejected, false},
		"VLAN":     {"The next Pod would be in the VLAN.", VFVLAN{ID: 5}, ErrRejected, false},
		"Bool":     {"Spoof check and trust protect others.", true, ErrRejected, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := (vfOption{value: tc.value}).maySkip(tc.answer); got != tc.want {
				t.Errorf("%s got %t", tc.reason, got)
			}
		})
	}
}
