// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// tenancy is a fake API server with two TenantConfigs and a namespace.
type tenancy struct {
	client.Reader

	lists, gets int
}

func (a *tenancy) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	a.gets++
	obj.SetLabels(map[string]string{"team": "red"})
	return nil
}

func (a *tenancy) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	a.lists++
	config := func(team, subnet string) v1.TenantConfig {
		return v1.TenantConfig{
			HostDevices: []v1.HostDevice{{Name: "ens4"}}, AllowedClusterSubnets: []v1.TenantSubnet{v1.TenantSubnet(subnet)},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}},
		}
	}
	configs, ok := list.(*v1.TenantConfigList)
	if !ok {
		return errors.ErrUnsupported
	}
	configs.Items = []v1.TenantConfig{config("red", "10.1.0.0/25"), config("blue", "10.1.0.128/25")}
	return nil
}

// Only a tenant's address in the nodes' subnets costs requests, and TenantConfigs of other
// namespaces permit nothing.
func TestPermissions(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, kind, address string
		want                  []netip.Prefix
		requests              int
	}{
		"LAN":     {"The address is in a subnet of nodes.", v1.KindTenantNetwork, "10.1.0.9/24", []netip.Prefix{netip.MustParsePrefix("10.1.0.0/25")}, 2},
		"Cluster": {"An administrator's network needs no permission.", v1.KindClusterNetwork, "10.1.0.9/24", nil, 0},
		"Apart":   {"The address is in no subnet of nodes.", v1.KindTenantNetwork, "10.7.0.9/24", nil, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := &tenancy{}
			s := &tenantSubnetCache{direct: api}
			source := &svcwatcher.Snapshot{
				Service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}},
				DanmEps: []v1.DanmEp{{Spec: v1.DanmEpSpec{APIType: tc.kind, Interface: v1.DanmEpInterface{Address: tc.address}}}},
				Ranges:  network.NewClusterRanges([]network.ClusterRange{{Prefix: netip.MustParsePrefix("10.1.0.0/24"), Purpose: network.RangeNodeSubnets}}),
			}
			for range 2 { // the second time TenantConfigs are known
				got, err := s.permittedFor(t.Context(), source)
				if diff := cmp.Diff(tc.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); err != nil || diff != "" {
					t.Errorf("%s: %v (-want +got)\n%s", tc.reason, err, diff)
				}
			}
			if want := tc.requests + tc.requests/2; api.lists+api.gets != want {
				t.Errorf("%s: %d requests, want %d", tc.reason, api.lists+api.gets, want)
			}
		})
	}
}
