// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Assignment is what admission gave to a TenantNetwork.
type Assignment struct {
	// Slot is what it may use.
	Slot TenantSlot
	// Token tells its reservation from others, also from that of a former network
	// of the same name.
	Token string
}

var tokenPattern = regexp.MustCompile(`^[0-9a-f]{16}$`)

// String returns the value of the annotation danm.io/assigned.
func (a Assignment) String() string { return a.Slot.String() + " " + a.Token }

// ParseAssignment reads what String writes.
func ParseAssignment(text string) (Assignment, error) {
	place, token, _ := strings.Cut(text, " ")
	p, err := ParseTenantSlot(place)
	if err != nil {
		return Assignment{}, err
	}
	if !tokenPattern.MatchString(token) {
		return Assignment{}, fmt.Errorf("parse assignment %.100q: token is %.50q, want 16 hexadecimal digits", text, token)
	}
	return Assignment{Slot: p, Token: token}, nil
}

// Kinds of a Place.
const (
	// SlotVLAN is a VLAN ID of a device.
	SlotVLAN = "vlan"
	// SlotVXLAN is a VXLAN network identifier of a device.
	SlotVXLAN = "vxlan"
	// SlotNIC is a device that has no IDs to give: its networks share it. The ID
	// only tells them apart.
	SlotNIC = "nic"
	// SlotPlugin is a CNI plugin that networkIds permits; Device is its name, and
	// the ID only tells its networks apart.
	SlotPlugin = "type"
)

// TenantSlot is the part of a TenantConfig that one TenantNetwork has. It is comparable.
type TenantSlot struct {
	// Kind is PlaceVLAN, PlaceVXLAN, PlaceNIC or PlaceType.
	Kind string
	// Device is the NIC or device pool, or the plugin for PlaceType.
	Device string
	// ID is the VLAN or VXLAN ID; for the other kinds a number that only counts.
	ID int
}

// String returns kind/device/ID, such as vlan/ens4/1003.
func (p TenantSlot) String() string { return p.Kind + "/" + p.Device + "/" + strconv.Itoa(p.ID) }

// maxSlotID bounds what only counts: as many as there are VXLANs.
const maxSlotID = maxVXLAN

// ParseTenantSlot reads what String writes. A device may have a "/" in its name.
func ParseTenantSlot(text string) (TenantSlot, error) {
	kind, rest, _ := strings.Cut(text, "/")
	at := strings.LastIndexByte(rest, '/')
	if at <= 0 {
		return TenantSlot{}, fmt.Errorf("parse place %.100q: want kind/device/ID, such as vlan/ens4/1003", text)
	}
	limit := maxSlotID
	switch kind {
	case SlotVLAN:
		limit = maxVLAN
	case SlotVXLAN, SlotNIC, SlotPlugin:
	default:
		return TenantSlot{}, fmt.Errorf("parse place %.100q: kind is %q, want vlan, vxlan, nic or type", text, kind)
	}
	id, err := strconv.Atoi(rest[at+1:])
	if err != nil || id < 1 || id > limit || strconv.Itoa(id) != rest[at+1:] {
		return TenantSlot{}, fmt.Errorf("parse place %.100q: ID is %q, want 1 to %d", text, rest[at+1:], limit)
	}
	return TenantSlot{Kind: kind, Device: rest[:at], ID: id}, nil
}

// Parent returns the physical attributes of a network at the place.
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

// Parent are the physical attributes that a Place stands for.
type Parent struct {
	// Device and DevicePool: at most one is not empty.
	Device, DevicePool string
	// VLAN and VXLAN: at most one is not 0.
	VLAN, VXLAN int
}
