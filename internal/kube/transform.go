// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// StripUnusedFields removes from a cached object what no program reads: managedFields can be larger
// than the rest, and kubectl's annotation repeats the spec. It is a cache.TransformFunc.
func StripUnusedFields(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
		annotations := o.GetAnnotations()
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		o.SetAnnotations(annotations)
	}
	return obj, nil
}

// StripNodeNetwork keeps of a NodeNetwork the names and addresses of its NICs. It is a
// cache.TransformFunc.
func StripNodeNetwork(obj any) (any, error) {
	nn, ok := obj.(*v1.NodeNetwork)
	if !ok {
		return StripUnusedFields(obj)
	}
	nn.Status.Links, nn.Status.Delegates = nil, nil
	for i := range nn.Status.NICs {
		nic := &nn.Status.NICs[i]
		*nic = v1.NIC{Name: nic.Name, Addresses: nic.Addresses}
	}
	return StripUnusedFields(nn)
}

// NodeNICAddresses returns the addresses of the nodes' NICs, which no Pod may get. It leaves out
// unreadable ones.
func NodeNICAddresses(nodes []v1.NodeNetwork) []netip.Addr {
	var all []netip.Addr
	for i := range nodes {
		for _, nic := range nodes[i].Status.NICs {
			for _, text := range nic.Addresses {
				if p, err := netip.ParsePrefix(text); err == nil {
					all = append(all, p.Addr().Unmap())
				}
			}
		}
	}
	return all
}

// ReservedNodeAddresses returns those of the nodes' NIC addresses that are in a network's subnets,
// on whatever NIC: a switch may join that NIC's segment and the network's VLAN, and a Pod cannot
// answer a node whose address it has.
func ReservedNodeAddresses(n *network.Network, nics []netip.Addr) []netip.Addr {
	var in []netip.Addr
	for _, a := range nics {
		if subnetContains(n.V4, a) || subnetContains(n.V6, a) {
			in = append(in, a)
		}
	}
	return in
}

func subnetContains(s *network.Subnet, a netip.Addr) bool { return s != nil && s.CIDR.Contains(a) }
