// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"encoding/json"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// threeInterfaces requests an interface of another plugin, one with both families, and one without an
// address.
const threeInterfaces = `[
	{"clusterNetwork": "flat"},
	{"network": "blue", "ip": "dynamic", "ip6": "dynamic"},
	{"network": "plain"}
]`

// newEnvironment returns an environment with Pod ns/web, which requests three interfaces, and their
// networks.
func newEnvironment() *environment {
	env := &environment{
		pods:       map[string]*corev1.Pod{},
		networks:   map[network.Ref]*network.Network{},
		claimed:    map[netip.Addr]bool{},
		records:    map[string][]byte{},
		namespaces: map[string]map[string][]netip.Addr{},
		delegated:  map[string]string{},
		endpoints:  map[string][]netip.Addr{},
	}
	env.pod(threeInterfaces)
	env.add(network.Network{
		Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "flat"}, ID: "flat", Type: "bridge", Prefix: "eth",
	})
	env.add(network.Network{
		Ref: network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "blue"}, ID: "blue", Type: "ipvlan", Prefix: "eth", Table: 100,
		Device: "ens4", VLAN: 500, V4: subnet("10.0.0.0/29", "10.0.0.1", "10.0.0.6"), V6: subnet("fd00::/125", "fd00::1", "fd00::6"),
	})
	env.add(network.Network{
		Ref: network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "plain"}, ID: "plain", Type: "macvlan", Prefix: "net",
		Device: "ens4",
	})
	return env
}

// pod creates or replaces Pod ns/web. With an empty text, it has no annotation.
func (env *environment) pod(annotation string) {
	meta := metav1.ObjectMeta{
		Namespace: "ns", Name: "web", UID: types.UID("uid"),
		Labels: map[string]string{"app": "web", "danm.io/x": "y", "hub.patchbay.io/z": "y"},
	}
	if annotation != "" {
		meta.Annotations = map[string]string{v1.InterfacesAnnotation: annotation}
	}
	env.pods["ns/web"] = &corev1.Pod{ObjectMeta: meta}
}

// add adds a network.
func (env *environment) add(n network.Network) { env.networks[n.Ref] = &n }

// subnet returns a subnet with a pool.
func subnet(cidr, start, end string) *network.Subnet {
	return &network.Subnet{
		CIDR: netip.MustParsePrefix(cidr), Start: netip.MustParseAddr(start), End: netip.MustParseAddr(end),
	}
}

// put writes a record of an earlier daemon.
func (env *environment) put(rec *attach.Record) {
	for i := range rec.Interfaces {
		if rec.Interfaces[i].Network.Type == "" {
			rec.Interfaces[i].Network.Type = "ipvlan"
		}
	}
	data, err := json.Marshal(rec)
	if err != nil {
		panic(err)
	}
	env.records[key(rec.ContainerID, rec.IfName)] = data
}
