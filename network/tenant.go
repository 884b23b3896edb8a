// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// Assigned checks that a tenant has not chosen what runs on the nodes, or what
// its network rides on there: a plugin runs as root, and a NIC, VLAN or VXLAN may
// be another tenant's. Admission assigns all of these from a TenantConfig, and
// says so in an annotation that tenants cannot write; what does not agree with it
// is the tenant's own wish. The other kinds are not restricted. The error is an
// *InvalidError with all fields; the object itself is still a valid one, whose
// addresses can be given back.
func (n *Network) Assigned() error {
	if n.Ref.Kind != v1.KindTenantNetwork {
		return nil
	}
	var f faults
	place := n.place(&f)
	spec := field.NewPath("spec")
	options := spec.Child("Options")
	if n.Delegates() && (place.Kind != PlaceType || place.Device != n.Type) {
		f.invalid(spec.Child("NetworkType"), n.Type,
			"is a CNI plugin that no TenantConfig has assigned: use ipvlan or macvlan, or ask for a ClusterNetwork")
	}
	want := place.Parent()
	for _, o := range []struct {
		name      string
		value     any
		agrees    bool
		wantValue any
	}{
		{"host_device", n.Device, n.Device == want.Device, want.Device},
		{"device_pool", n.DevicePool, n.DevicePool == want.DevicePool, want.DevicePool},
		{"vlan", n.VLAN, n.VLAN == want.VLAN, want.VLAN},
		{"vxlan", n.VXLAN, n.VXLAN == want.VXLAN, want.VXLAN},
	} {
		if !o.agrees {
			f.invalid(options.Child(o.name), o.value, unassigned(o.wantValue, n.Assignment))
		}
	}
	return f.err(n.Ref.String())
}

// unassigned says what an attribute should be.
func unassigned(want any, assignment string) string {
	if assignment == "" {
		return "is assigned from a TenantConfig when the network is created, and this was not: make the network anew without it, or ask for a ClusterNetwork that allows this namespace"
	}
	if want == "" || want == 0 {
		return "is not what was assigned from the TenantConfig, " + assignment + ": leave it out"
	}
	return fmt.Sprintf("is not what was assigned from the TenantConfig, %s: use %v", assignment, want)
}

// place reads the assignment; the zero Place stands for none.
func (n *Network) place(f *faults) Place {
	if n.Assignment == "" {
		return Place{}
	}
	a, err := ParseAssignment(n.Assignment)
	if err != nil {
		f.invalid(field.NewPath("metadata", "annotations").Key(v1.AssignedAnnotation), n.Assignment, err.Error())
	}
	return a.Place
}

// Parent are the physical attributes that a Place stands for.
type Parent struct {
	// Device and DevicePool: at most one is not empty.
	Device, DevicePool string
	// VLAN and VXLAN: at most one is not 0.
	VLAN, VXLAN int
}

// Parent returns the physical attributes of a network at the place.
func (p Place) Parent() Parent {
	var r Parent
	switch p.Kind {
	case PlaceVLAN:
		r.VLAN = p.ID
	case PlaceVXLAN:
		r.VXLAN = p.ID
	case PlaceNIC:
	default:
		return r
	}
	if strings.Contains(p.Device, "/") {
		r.DevicePool = p.Device
	} else {
		r.Device = p.Device
	}
	return r
}
