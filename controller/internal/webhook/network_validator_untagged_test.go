// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// tenantConfigList is a fake API server with TenantConfigs.
type tenantConfigList struct {
	client.Reader
	items []v1.TenantConfig
	err   error
}

func (c tenantConfigList) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if list, ok := into.(*v1.TenantConfigList); ok {
		list.Items = c.items
	}
	return c.err
}

// A network on the untagged NIC is admitted, with a warning about what its Pods can reach.
func TestUntaggedIsWarnedOf(t *testing.T) {
	t.Parallel()
	vlans := v1.TenantConfig{HostDevices: []v1.HostDevice{{Name: "ens4", VNIType: "vlan", VNIRange: "1000-1099"}}}
	broken := v1.TenantConfig{HostDevices: []v1.HostDevice{{Name: "ens4", VNIType: "vlan", VNIRange: "x"}}}
	net := func(kind string, vlan int) *network.Network {
		return &network.Network{Ref: network.Ref{Kind: kind, Name: "flat"}, Type: v1.TypeMACVLAN, Device: "ens4", VLAN: vlan}
	}
	cases := map[string]struct {
		reason string
		net    *network.Network
		reader tenantConfigList
		want   string
	}{
		"Untagged":   {reason: "The network reaches the tenants' VLANs.", net: net(v1.KindClusterNetwork, 0), reader: tenantConfigList{items: []v1.TenantConfig{broken, vlans}}, want: "send frames with their tags"},
		"Tagged":     {reason: "The network has a VLAN of its own.", net: net(v1.KindClusterNetwork, 7), reader: tenantConfigList{items: []v1.TenantConfig{vlans}}},
		"Tenant":     {reason: "The TenantConfig has chosen the device.", net: net(v1.KindTenantNetwork, 0), reader: tenantConfigList{items: []v1.TenantConfig{vlans}}},
		"NoConfig":   {reason: "No tenant has VLANs there.", net: net(v1.KindClusterNetwork, 0)},
		"Unreadable": {reason: "Without a warning the user would rely on separation.", net: net(v1.KindClusterNetwork, 0), reader: tenantConfigList{err: errors.New("away")}, want: "away"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join((&networkValidator{reader: tc.reader}).untaggedWarnings(t.Context(), tc.net), "\n")
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) || len(got) > 256 {
				t.Errorf("%s: got %q, want %q in at most 256 bytes", tc.reason, got, tc.want)
			}
		})
	}
}
