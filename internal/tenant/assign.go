// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// CheckIDsUnset checks that a tenant did not choose an ID for a new network: IDs are reserved from the
// range of a TenantConfig. The error is a *network.InvalidError with both fields.
func CheckIDsUnset(s *v1.NetworkSpec) error {
	var faults field.ErrorList
	for _, o := range []struct {
		name  string
		value int32
	}{{"vlan", s.Options.VLAN}, {"vxlan", s.Options.VXLAN}} {
		if o.value != 0 {
			faults = append(faults, field.Invalid(optionPath(o.name), o.value,
				"must be empty, because Patchbay selects the ID of a tenant's network from the ranges in TenantConfigs: leave it out"))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return &network.InvalidError{Faults: faults}
}

// RestoreAssignment writes the assigned attributes into a changed network that does not set them, and
// returns an error for attributes that differ. The networkID is that of networkIds for the type; with an
// empty one the tenant's NetworkID stays. The NetworkID of a plugin's network is the name of a file on
// the nodes: it stays as assigned, even if no TenantConfig has it any more. The error is a
// *network.InvalidError with all fields.
func RestoreAssignment(s *v1.NetworkSpec, p network.TenantSlot, old *v1.NetworkSpec, networkID string) error {
	var faults field.ErrorList
	assigned := p.Parent()
	for _, c := range assigned.ChangesTo(parentOf(&s.Options)) {
		if c.Is != "" && c.Is != 0 {
			faults = append(faults, field.Invalid(optionPath(c.Field), c.Is,
				fmt.Sprintf("must stay as assigned when the network was created, %s, which never changes: leave it out, or create another network", p)))
		}
	}
	before, now := network.BackendTypeOf(old), network.BackendTypeOf(s)
	if before != now && (p.Kind == network.SlotPlugin || isDelegated(now)) {
		faults = append(faults, field.Invalid(typePath(), now,
			fmt.Sprintf("must stay as assigned when the network was created, %s: use %s, or create another network", p, before)))
	}
	if len(faults) > 0 {
		return &network.InvalidError{Faults: faults}
	}
	setParent(&s.Options, assigned)
	switch {
	case p.Kind == network.SlotPlugin || networkID != "" && before == now:
		s.NetworkID = old.NetworkID
	case networkID != "":
		s.NetworkID = networkID // the old one was for the other type
	}
	return nil
}

func parentOf(o *v1.NetworkOptions) network.Parent {
	return network.Parent{Device: o.Device, DevicePool: o.DevicePool, VLAN: int(o.VLAN), VXLAN: int(o.VXLAN)}
}

func setParent(o *v1.NetworkOptions, p network.Parent) {
	o.Device, o.DevicePool = p.Device, p.DevicePool
	o.VLAN, o.VXLAN = int32(p.VLAN), int32(p.VXLAN)
}
