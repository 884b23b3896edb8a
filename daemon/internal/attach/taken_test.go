// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
)

// A user reads which Pod has a static address, and nothing about other namespaces.
func TestAddNamesTheOwnerOfAStaticAddress(t *testing.T) {
	t.Parallel()
	lan := network.Network{
		Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "lan"}, ID: "lan", Type: "ipvlan", Prefix: "eth", Device: "ens4",
		V4: subnet("10.0.0.0/29", "10.0.0.1", "10.0.0.6"),
	}
	const other = "interface eth0: network ClusterNetwork/lan: static address 10.0.0.5 must be free, but no known Pod of namespace ns has it: request another address, or ask a netadmin, who finds the Pod with `kubectl get danmeps -A -o wide | grep -w 10.0.0.5`"
	cases := map[string]struct {
		reason, annotation, owner string
		err                       error
		want                      string
	}{
		"Own": {
			reason: "A Pod of the same namespace has the address.", annotation: `[{"clusterNetwork": "lan", "ip": "10.0.0.5"}]`, owner: "ns/web-0",
			want: "interface eth0: network ClusterNetwork/lan: static address 10.0.0.5 must be free, but Pod ns/web-0 has it: delete that Pod, or request another address",
		},
		"Other": {reason: "The name of another tenant's Pod is secret.", annotation: `[{"clusterNetwork": "lan", "ip": "10.0.0.5"}]`, owner: "secret/web-0", want: other},
		"Earlier": {
			reason: "The Pod was deleted and created again, on another node.", annotation: `[{"clusterNetwork": "lan", "ip": "10.0.0.5"}]`, owner: "ns/web",
			want: "interface eth0: network ClusterNetwork/lan: static address 10.0.0.5 must be free, but an earlier Pod of this name has it: wait until its node releases it, or delete the Node if it is powered off for good",
		},
		"Gone": {
			reason: "A network in a namespace has Pods of this namespace only.", annotation: `[{"network": "blue", "ip": "10.0.0.5"}]`,
			want: "interface eth0: network DanmNet/ns/blue: static address 10.0.0.5 must be free, but no known Pod of namespace ns has it: wait until it is released, or request another address",
		},
		"Unknown": {
			reason: "Without an answer of the API server the error says where to look.", annotation: `[{"clusterNetwork": "lan", "ip": "10.0.0.5"}]`, err: errors.New("timeout"),
			want: "interface eth0: claim static address 10.0.0.5: address is taken by a Pod: find it with `kubectl get danmeps -A -o wide | grep -w 10.0.0.5`, and delete it, or request another address",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newEnvironment()
			env.add(lan)
			env.pod(tc.annotation)
			address := netip.MustParseAddr("10.0.0.5")
			env.ownersErr = tc.err
			if tc.owner != "" {
				env.owners = map[netip.Addr]string{address: tc.owner}
			}
			d := env.mustStart(t)
			env.claimed[address] = true
			_, err := d.Add(context.Background(), env.sandbox("a"))
			if err == nil || err.Error() != tc.want {
				t.Errorf("%s\ngot  %v\nwant %s", tc.reason, err, tc.want)
			}
			var taken *attach.AddressTakenError
			if !errors.Is(err, allocator.ErrTaken) || !errors.As(err, &taken) {
				t.Errorf("%s\ngot %v, want it to wrap ErrTaken, for the Event's reason", tc.reason, err)
			}
		})
	}
}
