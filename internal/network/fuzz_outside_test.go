// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Every configuration of a NetworkAttachmentDefinition gives an ErrInvalid, nothing, or a link with the
// name of a NIC and an identity within its bounds.
func FuzzFromAttachment(f *testing.F) {
	for _, seed := range []string{
		`{"type": "macvlan", "master": "ens4", "vlan": 5}`, `{"plugins": [{"type": "a", "master": "ens4", "vxlan": 16777214, "mtu": 1400}]}`,
		`{"type": "sriov", "master": "ens4", "vlan": 5}`, `{"master": "../x", "vlan": 5}`, `{"master": "ens4", "vlan": 4095}`,
		`{"master": "ens4", "vlan": 5, "vxlan": 6}`, `{"vlan": "5"}`, `{"master": "ens4", "vlan": 5, "mtu": -1}`, `{"plugins": [{"master": "ens4", "vxlan": 1, "mtu": 65536}]}`, `{"plugins": null}`, `{"plugins": {}}`, `[]`, `null`, ``, `{`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, config string) {
		n, err := network.FromNetworkAttachmentDefinition(&metav1.ObjectMeta{Namespace: "ns", Name: "net"}, config)
		switch {
		case err != nil:
			if !errors.Is(err, network.ErrInvalid) || n != nil {
				t.Errorf("FromNetworkAttachmentDefinition(%q): %v, %v", config, n, err)
			}
		case n != nil:
			if !regexp.MustCompile(`^[^/:\s]{1,15}$`).MatchString(n.Device) || n.VLAN < 0 || n.VLAN > 4094 || n.VXLAN < 0 || n.VXLAN > 16777214 || (n.VLAN == 0) == (n.VXLAN == 0) || n.MTU != 0 && (n.MTU < 1280 || n.MTU > 9216) {
				t.Errorf("FromNetworkAttachmentDefinition(%q): %+v", config, n)
			}
		}
	})
}

// Every TenantConfig gives an ErrInvalid, or devices with names and IDs within their bounds.
func FuzzTenantConfig(f *testing.F) {
	for _, seed := range []string{
		`{"hostDevices": [{"name": "ens4", "vniType": "vlan", "vniRange": "100-110,4094"}], "networkIds": {"flannel": "a"}}`,
		`{"hostDevices": [{"name": "example.com/pool"}], "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}}`,
		`{"hostDevices": [{"name": "ens4", "vniType": "vxlan", "vniRange": "0-16777215"}]}`, `{"networkIds": {"../x": "y"}}`,
		`{"namespaceSelector": {"matchExpressions": [{"key": "", "operator": "x"}]}, "networkIds": {"a": "b"}}`, `{}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var o v1.TenantConfig
		if json.Unmarshal([]byte(text), &o) != nil {
			return
		}
		tenancy, err := network.FromTenantConfig(&o)
		if err != nil {
			if !errors.Is(err, network.ErrInvalid) || tenancy != nil {
				t.Errorf("FromTenantConfig(%s): %v, %v", text, tenancy, err)
			}
			return
		}
		tenancy.AppliesTo(map[string]string{"a": "b"})
		for _, d := range tenancy.Devices {
			if d.Name == "" || len(d.VLANs) > 0 && len(d.VXLANs) > 0 {
				t.Errorf("FromTenantConfig(%s): device %+v", text, d)
			}
		}
	})
}
