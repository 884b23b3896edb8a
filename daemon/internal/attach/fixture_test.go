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

// three interfaces: another plugin's, one with both families, one without any.
const three = `[
	{"clusterNetwork": "flat"},
	{"network": "blue", "ip": "dynamic", "ip6": "dynamic"},
	{"network": "plain"}
]`

// newWorld has Pod ns/web, which asks for three interfaces, and their networks.
func newWorld() *world {
	w := &world{
		pods:       map[string]*corev1.Pod{},
		networks:   map[network.Ref]*network.Network{},
		held:       map[netip.Addr]bool{},
		records:    map[string][]byte{},
		namespaces: map[string]map[string][]netip.Addr{},
		delegated:  map[string]string{},
		endpoints:  map[string][]netip.Addr{},
	}
	w.pod(three)
	w.add(network.Network{
		Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "flat"}, ID: "flat", Type: "bridge", Prefix: "eth",
	})
	w.add(network.Network{
		Ref: network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "blue"}, ID: "blue", Type: "ipvlan", Prefix: "eth",
		Device: "ens4", VLAN: 500, V4: subnet("10.0.0.0/29", "10.0.0.1", "10.0.0.6"), V6: subnet("fd00::/125", "fd00::1", "fd00::6"),
	})
	w.add(network.Network{
		Ref: network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "plain"}, ID: "plain", Type: "macvlan", Prefix: "net",
		Device: "ens4",
	})
	return w
}

// pod makes or replaces Pod ns/web. An empty annotation is none.
func (w *world) pod(annotation string) {
	meta := metav1.ObjectMeta{
		Namespace: "ns", Name: "web", UID: types.UID("uid"),
		Labels: map[string]string{"app": "web", "danm.io/x": "y", "hub.patchbay.io/z": "y"},
	}
	if annotation != "" {
		meta.Annotations = map[string]string{v1.InterfacesAnnotation: annotation}
	}
	w.pods["ns/web"] = &corev1.Pod{ObjectMeta: meta}
}

func (w *world) add(n network.Network) { w.networks[n.Ref] = &n }

func subnet(cidr, start, end string) *network.Subnet {
	return &network.Subnet{
		CIDR: netip.MustParsePrefix(cidr), Start: netip.MustParseAddr(start), End: netip.MustParseAddr(end),
	}
}

// put writes a record as a former life left it.
func (w *world) put(rec *attach.Record) {
	for i := range rec.Interfaces {
		if rec.Interfaces[i].Network.Type == "" {
			rec.Interfaces[i].Network.Type = "ipvlan"
		}
	}
	data, err := json.Marshal(rec)
	if err != nil {
		panic(err)
	}
	w.records[key(rec.ContainerID, rec.IfName)] = data
}
