// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-cni/patchbay/internal/text"
)

// Assignment is the slot that admission assigned to a TenantNetwork.
type Assignment struct {
	// Slot is the part of the TenantConfig that the network may use.
	Slot TenantSlot
	// Token distinguishes the network's reservation from all others, including those of earlier
	// networks with the same name.
	Token string
}

var tokenPattern = regexp.MustCompile(`^[0-9a-f]{16}$`)

// String returns the value of the annotation danm.io/assigned.
func (a Assignment) String() string { return a.Slot.String() + " " + a.Token }

// ParseAssignment parses the format of Assignment.String.
func ParseAssignment(s string) (Assignment, error) {
	slotText, token, _ := strings.Cut(s, " ")
	slot, err := ParseTenantSlot(slotText)
	if err != nil {
		return Assignment{}, err
	}
	if !tokenPattern.MatchString(token) {
		return Assignment{}, fmt.Errorf("parse assignment %q: token must be 16 hexadecimal digits: got %q", text.Truncate(s, 100), text.Truncate(token, 50))
	}
	return Assignment{Slot: slot, Token: token}, nil
}

// Kinds of a TenantSlot.
const (
	// SlotVLAN is a VLAN ID of a device.
	SlotVLAN = "vlan"
	// SlotVXLAN is a VXLAN network identifier of a device.
	SlotVXLAN = "vxlan"
	// SlotNIC is a device without VNIs, which its networks share. The ID only distinguishes the
	// networks.
	SlotNIC = "nic"
	// SlotPlugin is a CNI plugin that networkIds permits. Device is its name, and the ID only
	// distinguishes its networks.
	SlotPlugin = "type"
)

// TenantSlot is the part of a TenantConfig that is reserved for one TenantNetwork. It is comparable.
type TenantSlot struct {
	// Kind is SlotVLAN, SlotVXLAN, SlotNIC or SlotPlugin.
	Kind string
	// Device is the NIC or device pool, or the plugin for SlotPlugin.
	Device string
	// ID is the VLAN or VXLAN ID; for the other kinds a number without further meaning.
	ID int
}

// String returns kind/device/ID, such as vlan/ens4/1003.
func (p TenantSlot) String() string { return p.Kind + "/" + p.Device + "/" + strconv.Itoa(p.ID) }

// maxSlotID bounds the IDs of SlotNIC and SlotPlugin, to as many as there are VXLANs.
const maxSlotID = maxVXLAN

// ParseTenantSlot parses the format of TenantSlot.String. The device's name may contain "/".
func ParseTenantSlot(s string) (TenantSlot, error) {
	kind, rest, _ := strings.Cut(s, "/")
	at := strings.LastIndexByte(rest, '/')
	if at <= 0 {
		return TenantSlot{}, fmt.Errorf("parse slot %q: must be kind/device/ID, such as vlan/ens4/1003", text.Truncate(s, 100))
	}
	limit := maxSlotID
	switch kind {
	case SlotVLAN:
		limit = maxVLAN
	case SlotVXLAN, SlotNIC, SlotPlugin:
	default:
		return TenantSlot{}, fmt.Errorf("parse slot %q: kind must be vlan, vxlan, nic or type: got %q", text.Truncate(s, 100), text.Truncate(kind, 50))
	}
	id, err := strconv.Atoi(rest[at+1:])
	if err != nil || id < 1 || id > limit || strconv.Itoa(id) != rest[at+1:] {
		return TenantSlot{}, fmt.Errorf("parse slot %q: ID must be 1 to %d: got %q", text.Truncate(s, 100), limit, text.Truncate(rest[at+1:], 50))
	}
	return TenantSlot{Kind: kind, Device: rest[:at], ID: id}, nil
}

// Parent returns the physical attributes of a network with the slot.
func (p TenantSlot) Parent() Parent {
	var r Parent
	switch p.Kind {
	case SlotVLAN:
		r.VLAN = p.ID
	case SlotVXLAN:
		r.VXLAN = p.ID
	case SlotNIC:
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

// Parent has the physical attributes of a network.
type Parent struct {
	// Device and DevicePool: at most one of them is not empty.
	Device, DevicePool string
	// VLAN and VXLAN: at most one of them is not 0.
	VLAN, VXLAN int
}

// parent returns the physical attributes of the network.
func (n *Network) parent() Parent {
	return Parent{Device: n.Device, DevicePool: n.DevicePool, VLAN: n.VLAN, VXLAN: n.VXLAN}
}

// ParentChange is a physical attribute that changes.
type ParentChange struct {
	// Field is the attribute's name in spec.Options.
	Field string
	// Was and Is are texts or numbers: "" or 0 when not set.
	Was, Is any
}

// ChangesTo returns the attributes that the other parent has with another value.
func (p Parent) ChangesTo(other Parent) []ParentChange {
	return slices.DeleteFunc([]ParentChange{
		{"host_device", p.Device, other.Device},
		{"device_pool", p.DevicePool, other.DevicePool},
		{"vlan", p.VLAN, other.VLAN},
		{"vxlan", p.VXLAN, other.VXLAN},
	}, func(c ParentChange) bool { return c.Was == c.Is })
}
