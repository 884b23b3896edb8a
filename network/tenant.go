// SPDX-License-Identifier: Apache-2.0

package network

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// Assigned checks that a tenant has not chosen what runs on the nodes, or what
// its network rides on there: a plugin runs as root, and a NIC, VLAN or VXLAN may
// be another tenant's. A TenantConfig is to assign all of these. Until that
// exists, whatever stands in a TenantNetwork is its tenant's own wish, so that
// none may be there. The other kinds are not restricted. The error is an
// *InvalidError with all fields; the object itself is still a valid one, whose
// addresses can be given back.
func (n *Network) Assigned() error {
	if n.Ref.Kind != v1.KindTenantNetwork {
		return nil
	}
	var f faults
	spec := field.NewPath("spec")
	options := spec.Child("Options")
	if n.Delegates() {
		f.invalid(spec.Child("NetworkType"), n.Type,
			"is a CNI plugin, and those of tenants are not served yet: use ipvlan or macvlan, or ask for a ClusterNetwork")
	}
	for _, o := range []struct {
		name  string
		value any
		set   bool
	}{
		{"host_device", n.Device, n.Device != ""},
		{"device_pool", n.DevicePool, n.DevicePool != ""},
		{"vlan", n.VLAN, n.VLAN != 0},
		{"vxlan", n.VXLAN, n.VXLAN != 0},
	} {
		if o.set {
			f.invalid(options.Child(o.name), o.value,
				"is assigned from a TenantConfig, which is not served yet: ask for a ClusterNetwork that allows this namespace")
		}
	}
	return f.err(n.Ref.String())
}
