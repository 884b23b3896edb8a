// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"context"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/network"
)

func routes(pairs ...string) []network.Route {
	var rs []network.Route
	for i := 0; i < len(pairs); i += 2 {
		rs = append(rs, network.Route{Dst: prefix(pairs[i]), Gateway: netip.MustParseAddr(pairs[i+1])})
	}
	return rs
}

func TestAttachGolden(t *testing.T) {
	cases := map[string]struct {
		reason string
		slave  Slave
		want   string
	}{
		"V4": {
			reason: "one address: no IPv6 at all, no broadcast address, announced when it comes up",
			slave:  Slave{Name: "eth1", Kind: MACVLAN, V4: prefix("10.0.0.5/24")},
			want: `link eth1 macvlan mode 3 on another namespace mtu 1500 up alias patchbay:ClusterNetwork/test arp_notify=1 disable_ipv6=1
  address 10.0.0.5/24 broadcast <nil>
  route 10.0.0.0/24 table 254 proto kernel
`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			host, _ := newHost(t, 1500)
			k := openKernel(t, host)
			pod := newNamespace(t)
			s := tc.slave
			s.Netns, s.Parent, s.Owner = pod, "ens4", "ClusterNetwork/test"
			if _, err := k.Attach(context.Background(), &s); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, dump(t, pod)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}
