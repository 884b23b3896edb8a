// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// sandbox is an attached sandbox with one interface.
func sandbox(namespace string) *attach.Record {
	id := fmt.Sprintf("sandbox-%010x", rand.Uint64N(1<<40))
	return &attach.Record{
		ContainerID: id, IfName: "eth0", NetName: "patchbay", Netns: "/run/netns/x", BootID: "b",
		PodNamespace: namespace, PodName: "pod", PodUID: "pod-uid", Labels: map[string]string{"app": "web"},
		State: attach.Attached,
		Interfaces: []attach.Interface{{
			Name: "eth0", V4: netip.MustParsePrefix("10.9.0.5/24"), MAC: "02:00:00:00:00:05", MTU: 1500,
			Network:      network.Network{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "n"}, UID: "net-uid", Type: "macvlan"},
			Proutes:      []network.Route{{Dst: netip.MustParsePrefix("10.1.0.0/16"), Gateway: netip.MustParseAddr("10.9.0.1")}},
			EndpointName: id + "-eth0",
		}},
	}
}

func TestEndpointDescribesTheInterface(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*attach.Interface)
		want   v1.DanmEpInterface
	}{
		"Own": {
			reason: "addresses of ours, policy routes by family",
			change: func(ifc *attach.Interface) {
				ifc.V6 = netip.MustParsePrefix("2001:db8::5/64")
				ifc.Proutes = append(ifc.Proutes, network.Route{
					Dst: netip.MustParsePrefix("2001:db8:1::/48"), Gateway: netip.MustParseAddr("2001:db8::1")})
			},
			want: v1.DanmEpInterface{
				Name: "eth0", Address: "10.9.0.5/24", AddressIPv6: "2001:db8::5/64", MacAddress: "02:00:00:00:00:05", MTU: 1500,
				Proutes:  map[string]string{"10.1.0.0/16": "10.9.0.1"},
				Proutes6: map[string]string{"2001:db8:1::/48": "2001:db8::1"},
			},
		},
		"Delegate": {
			reason: "a delegate's own addresses, the first of each family",
			change: func(ifc *attach.Interface) {
				ifc.V4, ifc.Proutes = netip.Prefix{}, nil
				ifc.Result = []byte(`{"cniVersion":"1.0.0","ips":[{"address":"10.244.1.3/24"},{"address":"10.244.1.4/24"},{"address":"fd00::3/64"}]}`)
			},
			want: v1.DanmEpInterface{Name: "eth0", Address: "10.244.1.3/24", AddressIPv6: "fd00::3/64", MacAddress: "02:00:00:00:00:05", MTU: 1500},
		},
		"DelegateWithOurs": {
			reason: "an address that we gave the delegate stands first",
			change: func(ifc *attach.Interface) {
				ifc.Proutes = nil
				ifc.Result = []byte(`{"cniVersion":"1.0.0","ips":[{"address":"10.244.1.3/24"}]}`)
			},
			want: v1.DanmEpInterface{Name: "eth0", Address: "10.9.0.5/24", MacAddress: "02:00:00:00:00:05", MTU: 1500},
		},
		"Layer2": {
			reason: "no address is an empty string, not an invalid prefix",
			change: func(ifc *attach.Interface) { ifc.V4, ifc.Proutes, ifc.Result = netip.Prefix{}, nil, []byte("not JSON") },
			want:   v1.DanmEpInterface{Name: "eth0", MacAddress: "02:00:00:00:00:05", MTU: 1500},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := sandbox("ns")
			tc.change(&rec.Interfaces[0])
			ep := newDanmEp(rec, &rec.Interfaces[0], NodeIdentity{Name: "node", UID: "uid"})
			if diff := cmp.Diff(tc.want, ep.Spec.Interface); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if len(ep.OwnerReferences) > 0 || len(ep.Finalizers) != 1 || ep.Finalizers[0] != v1.NodeFinalizer {
				t.Errorf("owners %v and finalizers %v: only the node may let it go", ep.OwnerReferences, ep.Finalizers)
			}
		})
	}
}
