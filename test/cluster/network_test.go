// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// clusterNetwork returns a network with these options; its ID is id.
func clusterNetwork(name, id, kind string, o v1.NetworkOptions) *v1.ClusterNetwork {
	return &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.NetworkSpec{NetworkID: id, NetworkType: kind, Options: o},
	}
}

// vlan is an IPVLAN network on a VLAN of the trunk.
func vlan(name, id string, tag int32, cidr string) *v1.ClusterNetwork {
	return clusterNetwork(name, id, v1.TypeIPVLAN, v1.NetworkOptions{Device: trunk, VLAN: tag, CIDR: cidr})
}

// vxlan is a MACVLAN network on a VXLAN between the nodes' trunk addresses.
func vxlan(name, id string, vni int32, cidr string) *v1.ClusterNetwork {
	return clusterNetwork(name, id, v1.TypeMACVLAN, v1.NetworkOptions{Device: trunk, VXLAN: vni, CIDR: cidr})
}
