// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Config is a TenantConfig with its reservations.
type Config struct {
	*network.TenantConfig
	*Reservations
}

// configsFor returns the TenantConfigs for a namespace, by name.
func configsFor(configs []Config, labels map[string]string) []Config {
	mine := slices.DeleteFunc(slices.Clone(configs), func(c Config) bool { return !c.AppliesTo(labels) })
	slices.SortFunc(mine, func(a, b Config) int { return cmp.Compare(a.Name, b.Name) })
	return mine
}

// ContainsSlot reports whether the TenantConfig has the slot, reserved or not.
func ContainsSlot(t *network.TenantConfig, p network.TenantSlot) bool {
	if p.Kind == network.SlotPlugin {
		_, ok := t.NetworkIDs[p.Device]
		return ok && p.ID <= maxShared
	}
	for _, d := range t.Devices {
		if d.Name != p.Device {
			continue
		}
		for _, o := range candidatesOf(Config{TenantConfig: t}, d) {
			if o.kind == p.Kind && o.ranges.Contains(p.ID) {
				return true
			}
		}
	}
	return false
}

// CheckUpdate checks that a changed TenantConfig still has all reserved slots.
// The error is a *network.InvalidError that names one network and the count.
func CheckUpdate(changed *network.TenantConfig, b *Reservations) error {
	var first Reservation
	count := 0
	for r := range b.All() {
		if ContainsSlot(changed, r.Slot) {
			continue
		}
		if count == 0 {
			first = r
		}
		count++
	}
	if count == 0 {
		return nil
	}
	return invalidError(fieldPathOf(first.Slot), first.Slot.String(),
		"must not be removed, because TenantNetwork %s uses it%s: delete the networks first, or keep it", first.Owner, andMore(count))
}

func fieldPathOf(p network.TenantSlot) *field.Path {
	if p.Kind == network.SlotPlugin {
		return field.NewPath("networkIds")
	}
	return field.NewPath("hostDevices")
}

// CheckDelete checks that a TenantConfig has no reservations.
func CheckDelete(name string, b *Reservations) error {
	for r := range b.All() {
		return invalidError(field.NewPath("metadata", "name"), name,
			"must have no reservations for a deletion, and TenantNetwork %s has %s%s: delete the networks first", r.Owner, r.Slot, andMore(b.Len()))
	}
	return nil
}

func andMore(count int) string {
	if count == 1 {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", count-1)
}

// CheckOverlap checks that two TenantConfigs do not give one ID to two networks, or two NetworkIDs for
// one type to a namespace. Devices without IDs may be in both, because networks share them.
func CheckOverlap(a, b *network.TenantConfig) error {
	for i, d := range a.Devices {
		for _, o := range b.Devices {
			same := d.Name == o.Name && d.VLANs.Overlaps(o.VLANs)
			if ranges, others := d.VLANs, o.VLANs; same || d.VXLANs.Overlaps(o.VXLANs) {
				if !same {
					ranges, others = d.VXLANs, o.VXLANs
				}
				return invalidError(field.NewPath("hostDevices").Index(i).Child("vniRange"), ranges.String(),
					"must not overlap %s of %s in TenantConfig %s, because an ID belongs to one of them: use disjoint ranges", others, o.Name, b.Name)
			}
		}
	}
	if !selectSameNamespaces(a, b) {
		return nil
	}
	for t, id := range a.NetworkIDs {
		if other, ok := b.NetworkIDs[t]; ok && other != id {
			return invalidError(field.NewPath("networkIds").Key(t), id,
				"must be %q as in TenantConfig %s, which is for the same namespaces: use the same, or another namespaceSelector", other, b.Name)
		}
	}
	return nil
}

// selectSameNamespaces reports whether two TenantConfigs always have a namespace in common. With two
// different selectors it depends on the namespaces: ChooseSlot returns an error then.
func selectSameNamespaces(a, b *network.TenantConfig) bool {
	return a.Selector == nil || b.Selector == nil || a.Selector.String() == b.Selector.String()
}
