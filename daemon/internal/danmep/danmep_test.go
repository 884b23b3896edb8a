// SPDX-License-Identifier: Apache-2.0

package danmep

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/nodestate"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// newRecord returns the record of an attached sandbox with one interface.
func newRecord(namespace string) *attach.Record {
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

// A DanmEp has the addresses and policy routes of its interface.
func TestNewDanmEp(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*attach.Interface)
		want   v1.DanmEpInterface
	}{
		"Own": {
			reason: "Patchbay allocated the addresses, and the policy routes are split by family.",
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
			reason: "The delegate allocated the addresses; the first of each family counts.",
			change: func(ifc *attach.Interface) {
				ifc.V4, ifc.Proutes = netip.Prefix{}, nil
				ifc.Result = []byte(`{"cniVersion":"1.0.0","ips":[{"address":"10.244.1.3/24"},{"address":"10.244.1.4/24"},{"address":"fd00::3/64"}]}`)
			},
			want: v1.DanmEpInterface{Name: "eth0", Address: "10.244.1.3/24", AddressIPv6: "fd00::3/64", MacAddress: "02:00:00:00:00:05", MTU: 1500},
		},
		"DelegateWithAllocated": {
			reason: "An address that Patchbay allocated counts before those of the delegate.",
			change: func(ifc *attach.Interface) {
				ifc.Proutes = nil
				ifc.Result = []byte(`{"cniVersion":"1.0.0","ips":[{"address":"10.244.1.3/24"}]}`)
			},
			want: v1.DanmEpInterface{Name: "eth0", Address: "10.9.0.5/24", MacAddress: "02:00:00:00:00:05", MTU: 1500},
		},
		"Function": {
			reason: "An administrator finds the Pod of a virtual function, and its representor in the switch.",
			change: func(ifc *attach.Interface) {
				ifc.V4, ifc.Proutes, ifc.DeviceID, ifc.Representor = netip.Prefix{}, nil, "0000:03:10.2", "ens4r1"
			},
			want: v1.DanmEpInterface{Name: "eth0", MacAddress: "02:00:00:00:00:05", MTU: 1500, DeviceID: "0000:03:10.2", Representor: "ens4r1"},
		},
		"Layer2": {
			reason: "A missing address is an empty string, not an invalid prefix.",
			change: func(ifc *attach.Interface) { ifc.V4, ifc.Proutes, ifc.Result = netip.Prefix{}, nil, []byte("not JSON") },
			want:   v1.DanmEpInterface{Name: "eth0", MacAddress: "02:00:00:00:00:05", MTU: 1500},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := newRecord("ns")
			tc.change(&rec.Interfaces[0])
			ep := newDanmEp(rec, &rec.Interfaces[0], nodestate.Identity{Name: "node", UID: "uid"})
			if diff := cmp.Diff(tc.want, ep.Spec.Interface); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if len(ep.OwnerReferences) > 0 || len(ep.Finalizers) != 1 || ep.Finalizers[0] != v1.NodeFinalizer {
				t.Errorf("got owners %v and finalizers %v, want no owner and the finalizer of the node", ep.OwnerReferences, ep.Finalizers)
			}
		})
	}
}
