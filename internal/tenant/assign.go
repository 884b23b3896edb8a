// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// CheckIDsUnset checks that a tenant did not choose an ID for a new network: it is
// reserved from the range. The error is a *network.InvalidError with both fields.
func CheckIDsUnset(s *v1.NetworkSpec) error {
	var faults field.ErrorList
	for _, o := range []struct {
		name  string
		value int32
	}{{"vlan", s.Options.VLAN}, {"vxlan", s.Options.VXLAN}} {
		if o.value != 0 {
			faults = append(faults, field.Invalid(optionPath(o.name), o.value,
				"is reserved for a TenantNetwork from the range of its TenantConfig: leave it out"))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return &network.InvalidError{Faults: faults}
}

// RestoreAssignment gives a changed network what was assigned to it and left out of the
// change, and refuses what is there and differs. The NetworkID is what networkIds says
// for the type; empty leaves the tenant its own, but that of a plugin's network, which
// names a file on the nodes, stays what was assigned even when no TenantConfig says so
// any longer. The error is a *network.InvalidError with all fields.
func RestoreAssignment(s *v1.NetworkSpec, p network.TenantSlot, old *v1.NetworkSpec, networkID string) error {
	var faults field.ErrorList
	was := p.Parent()
	for _, o := range []struct {
		name      string
		value     any
		set       bool
		want      any
		different bool
	}{
		{"host_device", s.Options.Device, s.Options.Device != "", was.Device, s.Options.Device != was.Device},
		{"device_pool", s.Options.DevicePool, s.Options.DevicePool != "", was.DevicePool, s.Options.DevicePool != was.DevicePool},
		{"vlan", s.Options.VLAN, s.Options.VLAN != 0, was.VLAN, int(s.Options.VLAN) != was.VLAN},
		{"vxlan", s.Options.VXLAN, s.Options.VXLAN != 0, was.VXLAN, int(s.Options.VXLAN) != was.VXLAN},
	} {
		if o.set && o.different {
			faults = append(faults, field.Invalid(optionPath(o.name), o.value,
				fmt.Sprintf("the network was assigned %s when it was created, and that never changes: leave it out, or make another network", p)))
		}
	}
	before, now := network.BackendTypeOf(old), network.BackendTypeOf(s)
	if before != now && (p.Kind == network.SlotPlugin || (NetworkRequest{Type: now}).delegates()) {
		faults = append(faults, field.Invalid(typePath(), now,
			fmt.Sprintf("the network was assigned %s when it was created: use %s, or make another network", p, before)))
	}
	if len(faults) > 0 {
		return &network.InvalidError{Faults: faults}
	}
	setParent(&s.Options, was)
	switch {
	case p.Kind == network.SlotPlugin || networkID != "" && before == now:
		s.NetworkID = old.NetworkID
	case networkID != "":
		s.NetworkID = networkID // it was the other type's
	}
	return nil
}

func setParent(o *v1.NetworkOptions, p network.Parent) {
	o.Device, o.DevicePool = p.Device, p.DevicePool
	o.VLAN, o.VXLAN = int32(p.VLAN), int32(p.VXLAN)
}
