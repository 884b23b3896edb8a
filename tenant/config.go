// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/patchbay-cni/patchbay/network"
)

// Config is a TenantConfig with what is reserved of it.
type Config struct {
	*network.Tenancy
	*Book
}

// serving returns the TenantConfigs for a namespace, by name.
func serving(configs []Config, labels map[string]string) []Config {
	mine := slices.DeleteFunc(slices.Clone(configs), func(c Config) bool { return !c.Serves(labels) })
	slices.SortFunc(mine, func(a, b Config) int { return cmp.Compare(a.Name, b.Name) })
	return mine
}

// Offers reports whether the TenantConfig has a place to give, reserved or not.
func Offers(t *network.Tenancy, p network.Place) bool {
	if p.Kind == network.PlaceType {
		_, ok := t.NetworkIDs[p.Device]
		return ok && p.ID <= maxShared
	}
	for _, d := range t.Devices {
		if d.Name != p.Device {
			continue
		}
		for _, o := range offersOf(Config{Tenancy: t}, d) {
			if o.kind == p.Kind && o.ranges.Contains(p.ID) {
				return true
			}
		}
	}
	return false
}

// Keeps checks that a changed TenantConfig still has all that is reserved of it.
// The error is a *network.InvalidError that names one network and the count.
func Keeps(changed *network.Tenancy, b *Book) error {
	var first Reservation
	count := 0
	for r := range b.All() {
		if Offers(changed, r.Place) {
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
	return refuse(pathOf(first.Place), first.Place.String(),
		"is taken away, and TenantNetwork %s uses it%s: delete the networks first, or keep it", first.Owner, others(count))
}

func pathOf(p network.Place) *field.Path {
	if p.Kind == network.PlaceType {
		return field.NewPath("networkIds")
	}
	return field.NewPath("hostDevices")
}

// Deletable checks that nothing is reserved of a TenantConfig.
func Deletable(name string, b *Book) error {
	for r := range b.All() {
		return refuse(field.NewPath("metadata", "name"), name,
			"TenantNetwork %s draws %s from it%s: delete the networks first", r.Owner, r.Place, others(b.Len()))
	}
	return nil
}

func others(count int) string {
	if count == 1 {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", count-1)
}

// Overlap says why two TenantConfigs cannot stand beside each other: they would
// give one ID to two tenants, or one namespace two answers. Networks share a
// device without IDs anyway.
func Overlap(a, b *network.Tenancy) error {
	for i, d := range a.Devices {
		for _, o := range b.Devices {
			same := d.Name == o.Name && d.VLANs.Overlaps(o.VLANs)
			if ranges := d.VLANs; same || d.VXLANs.Overlaps(o.VXLANs) {
				if !same {
					ranges = d.VXLANs
				}
				return refuse(field.NewPath("hostDevices").Index(i).Child("vniRange"), ranges.String(),
					"of %s overlaps that of %s in TenantConfig %s, and an ID belongs to one of them: use disjoint ranges", d.Name, o.Name, b.Name)
			}
		}
	}
	if !meet(a, b) {
		return nil
	}
	for t, id := range a.NetworkIDs {
		if other, ok := b.NetworkIDs[t]; ok && other != id {
			return refuse(field.NewPath("networkIds").Key(t), id,
				"is %q in TenantConfig %s, which is for the same namespaces: use the same, or another namespaceSelector", other, b.Name)
		}
	}
	return nil
}

// meet reports whether two TenantConfigs are certainly for a namespace in common.
// That of two different selectors depends on the namespaces: Choose finds out.
func meet(a, b *network.Tenancy) bool {
	return a.Selector == nil || b.Selector == nil || a.Selector.String() == b.Selector.String()
}
