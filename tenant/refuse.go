// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// refuse names the field, its value, and what would be accepted.
func refuse(path *field.Path, value any, rule string, args ...any) error {
	return &network.InvalidError{Faults: field.ErrorList{field.Invalid(path, value, fmt.Sprintf(rule, args...))}}
}

func optionPath(name string) *field.Path { return field.NewPath("spec", "Options", name) }

func typePath() *field.Path { return field.NewPath("spec", "NetworkType") }

func (w Wish) nothing() error {
	return refuse(field.NewPath("metadata", "namespace"), w.Namespace,
		"no TenantConfig is for this namespace, so there is nothing to assign: ask a netadmin for one, or for a ClusterNetwork that allows the namespace")
}

func (w Wish) tie(id, other string, a, b Config) error {
	return refuse(typePath(), w.Type,
		"TenantConfigs %s and %s are both for namespace %s, and networkIds[%s] is %q in one and %q in the other: ask a netadmin to make them agree",
		a.Name, b.Name, w.Namespace, w.Type, id, other)
}

func (w Wish) noPlugin() error {
	return refuse(typePath(), w.Type,
		"is a CNI plugin that no TenantConfig for this namespace has in networkIds: use ipvlan or macvlan, or ask a netadmin for it")
}

func (w Wish) pluginDevice() error {
	path, value := optionPath("host_device"), w.Device
	if value == "" {
		path, value = optionPath("device_pool"), w.DevicePool
	}
	return refuse(path, value, "CNI plugin %s finds its device by itself: leave it out", w.Type)
}

// noDevice tells an asked device that is not there from none that suits.
func (w Wish) noDevice(configs []Config) error {
	var names []string
	for _, c := range configs {
		for _, d := range c.Devices {
			if (Wish{Type: w.Type}).suits(d) && !slices.Contains(names, d.Name) {
				names = append(names, d.Name)
			}
		}
	}
	have := "leave it out, no device suits " + w.Type
	if len(names) > 0 {
		have = "use " + strings.Join(names, ", ") + ", or leave it out"
	}
	switch {
	case w.Device != "":
		return refuse(optionPath("host_device"), w.Device, "is not among the devices of a TenantConfig for this namespace: %s", have)
	case w.DevicePool != "":
		return refuse(optionPath("device_pool"), w.DevicePool, "is not among the device pools of a TenantConfig for this namespace: %s", have)
	}
	want := "a NIC"
	if w.Type == v1.TypeSRIOV {
		want = "a device pool, with VLANs or without IDs"
	}
	return refuse(typePath(), w.Type, "needs %s, and no TenantConfig for this namespace has one: use another type, or ask a netadmin for it", want)
}

func (w Wish) exhausted(offers []offer) error {
	var full []string
	for _, o := range offers {
		if o.kind != network.PlaceNIC {
			full = append(full, fmt.Sprintf("%s %s of %s (%d reserved)", o.kind, o.ranges, o.device, o.used()))
		}
	}
	return refuse(typePath(), w.Type, "every ID that this namespace may have is in use: %s; delete a network, or ask a netadmin for more",
		strings.Join(full, ", "))
}
