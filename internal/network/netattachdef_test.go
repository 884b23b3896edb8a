// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/internal/network"
)

func TestFromNetworkAttachmentDefinition(t *testing.T) {
	t.Parallel()
	created := time.Unix(7, 0)
	meta := &metav1.ObjectMeta{Namespace: "red", Name: "storage", UID: "u", Generation: 3, CreationTimestamp: metav1.NewTime(created)}
	expect := func(change func(*network.Network)) *network.Network {
		n := &network.Network{
			Ref: network.Ref{Kind: network.KindNetworkAttachmentDefinition, Namespace: "red", Name: "storage"}, UID: "u", Generation: 3, Created: created,
			Type: "macvlan", Device: "ens4", Prefix: "eth",
		}
		change(n)
		return n
	}
	cases := map[string]struct {
		reason, config string
		want           *network.Network
		link           string
		wrong          string
	}{
		"VLAN": {
			reason: "the name of the link comes from its identity", config: `{"cniVersion":"1.0.0","type":"macvlan","master":"ens4","vlan":500,"mtu":1400,"ipam":{}}`,
			want: expect(func(n *network.Network) { n.VLAN, n.ID, n.MTU = 500, "ens4", 1400 }), link: "ens4.500",
		},
		"VXLAN": {
			reason: "a VNI exists once on a node", config: `{"type":"ipvlan","master":"ens4","vxlan":70000}`,
			want: expect(func(n *network.Network) { n.Type, n.VXLAN, n.ID = "ipvlan", 70000, "70000" }), link: "vx_70000",
		},
		"List": {
			reason: "the first plugin with the keys counts", config: `{"name":"x","plugins":[{"type":"tuning"},{"type":"macvlan","master":"ens4","vlan":5}]}`,
			want: expect(func(n *network.Network) { n.VLAN, n.ID = 5, "ens4" }), link: "ens4.5",
		},
		"NoKeys":    {reason: "the plugin needs no link besides its master", config: `{"type":"macvlan","master":"ens4"}`},
		"Bridge":    {reason: "the key is the VLAN of a bridge's port", config: `{"type":"bridge","bridge":"br0","vlan":5}`},
		"SRIOV":     {reason: "the key is the VLAN of a virtual function", config: `{"type":"sriov","master":"ens4","vlan":5}`},
		"Empty":     {reason: "a file on the nodes has the configuration", config: ""},
		"NotJSON":   {reason: "the message names the field", config: "{", wrong: "spec.config"},
		"BothKeys":  {reason: "a link is either a VLAN or a VXLAN", config: `{"type":"macvlan","master":"ens4","vlan":5,"vxlan":6}`, wrong: "vlan 5 must not be set with vxlan 6"},
		"Range":     {reason: "the range is that of network objects", config: `{"type":"macvlan","master":"ens4","vlan":4095}`, wrong: "must be between 1 and 4094"},
		"VNI":       {reason: "the range is that of network objects", config: `{"type":"macvlan","master":"ens4","vxlan":0}`, wrong: "must be between 1 and 16777214"},
		"Path":      {reason: "names become parts of paths", config: `{"type":"macvlan","master":"../x","vlan":5}`, wrong: "must be the name of a NIC"},
		"LongName":  {reason: "a link name has at most 15 bytes", config: `{"type":"macvlan","master":"enp129s0f1np1","vlan":4000}`, wrong: "NetworkID of 10 characters"},
		"TextVLAN":  {reason: "the message names the field", config: `{"type":"macvlan","master":"ens4","vlan":"5"}`, wrong: "spec.config"},
		"VeryLarge": {reason: "the size of a configuration is bounded", config: strings.Repeat(" ", 70000), wrong: "65536"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := network.FromNetworkAttachmentDefinition(meta, tc.config)
			if tc.wrong != "" {
				if !errors.Is(err, network.ErrInvalid) || !strings.Contains(err.Error(), tc.wrong) || !strings.Contains(err.Error(), "red/storage") {
					t.Errorf("%s: got %v, want an error with %q", tc.reason, err, tc.wrong)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if got != nil && got.LinkName() != tc.link {
				t.Errorf("%s: the link is %s, want %s", tc.reason, got.LinkName(), tc.link)
			}
		})
	}
}

// Definitions of the same VLAN in many namespaces share a link with each other and with network objects.
// Only a definition that conflicts with an older network is in the result.
func TestConflictsOfNetworkAttachmentDefinitions(t *testing.T) {
	t.Parallel()
	read := func(namespace, config string) *network.Network {
		n, err := network.FromNetworkAttachmentDefinition(&metav1.ObjectMeta{Namespace: namespace, Name: "n", CreationTimestamp: metav1.NewTime(time.Unix(9, 0))}, config)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const same = `{"type":"macvlan","master":"ens4","vlan":500}`
	old := &network.Network{Ref: network.Ref{Kind: "ClusterNetwork", Name: "storage"}, ID: "storage", Type: "macvlan", Device: "ens4", VLAN: 500, Created: time.Unix(1, 0)}
	a, b := read("a", same), read("b", same)
	other, wrong := read("c", `{"type":"macvlan","master":"ens4","vlan":501}`), read("d", `{"type":"ipvlan","master":"ens4","vlan":500}`)
	conflicts := network.Conflicts([]*network.Network{b, a, other, wrong, old})
	if len(conflicts) != 1 || conflicts[wrong.Ref] == nil {
		t.Errorf("conflicts %v, want only the definition with another backend", conflicts)
	}
}
