// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Config is a TenantConfig with what is reserved of it.
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

// ContainsSlot reports whether the TenantConfig has a place to give, reserved or not.
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

// CheckUpdate checks that a changed TenantConfig still has all that is reserved of it.
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
		"is taken away, and TenantNetwork %s uses it%s: delete the networks first, or keep it", first.Owner, andMore(count))
}

func fieldPathOf(p network.TenantSlot) *field.Path {
	if p.Kind == network.SlotPlugin {
		return field.NewPath("networkIds")
	}
	return field.NewPath("hostDevices")
}

// CheckDelete checks that nothing is reserved of a TenantConfig.
func CheckDelete(name string, b *Reservations) error {
	for r := range b.All() {
		return invalidError(field.NewPath("metadata", "name"), name,
			"TenantNetwork %s draws %s from it%s: delete the networks first", r.Owner, r.Slot, andMore(b.Len()))
	}
	return nil
}

func andMore(count int) string {
	if count == 1 {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", count-1)
}

// CheckOverlap says why two TenantConfigs cannot stand beside each other: they would
// give one ID to two tenants, or one namespace two answers. Networks share a
// device without IDs anyway.
func CheckOverlap(a, b *network.TenantConfig) error {
	for i, d := range a.Devices {
		for _, o := range b.Devices {
			same := d.Name == o.Name && d.VLANs.Overlaps(o.VLANs)
			if ranges := d.VLANs; same || d.VXLANs.Overlaps(o.VXLANs) {
				if !same {
					ranges = d.VXLANs
				}
				return invalidError(field.NewPath("hostDevices").Index(i).Child("vniRange"), ranges.String(),
					"of %s overlaps that of %s in TenantConfig %s, and an ID belongs to one of them: use disjoint ranges", d.Name, o.Name, b.Name)
			}
		}
	}
	if !selectSameNamespaces(a, b) {
		return nil
	}
	for t, id := range a.NetworkIDs {
		if other, ok := b.NetworkIDs[t]; ok && other != id {
			return invalidError(field.NewPath("networkIds").Key(t), id,
				"is %q in TenantConfig %s, which is for the same namespaces: use the same, or another namespaceSelector", other, b.Name)
		}
	}
	return nil
}

// selectSameNamespaces reports whether two TenantConfigs are certainly for a namespace in common.
// That of two different selectors depends on the namespaces: Choose finds out.
func selectSameNamespaces(a, b *network.TenantConfig) bool {
	return a.Selector == nil || b.Selector == nil || a.Selector.String() == b.Selector.String()
}
