// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// NetworkRequest is the request of a new TenantNetwork.
type NetworkRequest struct {
	// Namespace of the network, and the namespace's labels.
	Namespace       string
	NamespaceLabels map[string]string
	// Type is as in network.Network.
	Type string
	// Device or DevicePool is the requested one; at most one of them is set.
	Device, DevicePool string
}

// Choice is the slot for a TenantNetwork.
type Choice struct {
	// Config is the TenantConfig of the slot.
	Config Config
	// Slot is a free slot.
	Slot network.TenantSlot
	// NetworkID is that of networkIds for the type. If it is empty, the tenant's stays.
	NetworkID string
}

// Apply writes the choice into a network's spec.
func (c Choice) Apply(s *v1.NetworkSpec) {
	setParent(&s.Options, c.Slot.Parent())
	if c.NetworkID != "" {
		s.NetworkID = c.NetworkID
	}
}

// TakenFunc reports whether a network without a reservation uses the slot, or the name that its link
// would get.
type TakenFunc func(p network.TenantSlot) bool

// maxShared is the number of networks that can share a device without IDs, or a plugin.
const maxShared = 1 << 20

// ChooseSlot finds a free slot for a network: the device with the fewest IDs in use, and its lowest
// free ID. Devices without IDs come last, because their networks share one segment. Taken may be nil.
// The error is a *network.InvalidError.
func ChooseSlot(w NetworkRequest, configs []Config, taken TakenFunc) (Choice, error) {
	mine := configsFor(configs, w.NamespaceLabels)
	if len(mine) == 0 {
		return Choice{}, noTenantConfigError(w)
	}
	id, from, err := w.networkID(mine)
	if err != nil {
		return Choice{}, err
	}
	if isDelegated(w.Type) {
		return w.choosePlugin(id, from)
	}
	candidates := w.candidates(mine)
	if len(candidates) == 0 {
		return Choice{}, noDeviceError(w, mine)
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.used(), b.used()))
	})
	for _, o := range candidates {
		if o.kind == network.SlotNIC && candidates[0].kind != network.SlotNIC {
			break // an error is better than an unexpected shared segment
		}
		if slot, ok := o.config.lowestFree(o.kind, o.device, o.ranges, o.takenFilter(taken)); ok {
			return Choice{Config: o.config, Slot: slot, NetworkID: id}, nil
		}
	}
	return Choice{}, exhaustedError(w, candidates)
}

// candidates returns the devices that match the type and the requested device.
func (w NetworkRequest) candidates(configs []Config) []candidate {
	var all []candidate
	for _, c := range configs {
		for _, d := range c.Devices {
			if !w.matchesDevice(d) {
				continue
			}
			all = append(all, candidatesOf(c, d)...)
		}
	}
	// Admission rejects VXLANs in a new device pool; a stored one may have them.
	return slices.DeleteFunc(all, func(o candidate) bool { return o.kind == network.SlotVXLAN && isPool(o.device) })
}

// matchesDevice reports whether the device can be used: a device pool for SR-IOV, and a NIC for other
// types unless they request a pool.
func (w NetworkRequest) matchesDevice(d network.TenantDevice) bool {
	pool := isPool(d.Name)
	switch {
	case w.Device != "":
		return !pool && d.Name == w.Device
	case w.DevicePool != "":
		return pool && d.Name == w.DevicePool
	}
	return pool == (w.Type == v1.TypeSRIOV)
}

// isPool reports whether a device is a device pool, whose virtual functions have no VXLAN.
func isPool(device string) bool { return strings.Contains(device, "/") }

func candidatesOf(c Config, d network.TenantDevice) []candidate {
	switch {
	case len(d.VLANs) > 0:
		return []candidate{{c, network.SlotVLAN, d.Name, d.VLANs}}
	case len(d.VXLANs) > 0:
		return []candidate{{c, network.SlotVXLAN, d.Name, d.VXLANs}}
	}
	return []candidate{{c, network.SlotNIC, d.Name, network.VNIRanges{{First: 1, Last: maxShared}}}}
}

// candidate is a device that matches a request.
type candidate struct {
	config       Config
	kind, device string
	ranges       network.VNIRanges
}

func (o candidate) used() int { return o.config.Used(o.kind, o.device) }

func (o candidate) rank() int {
	if o.kind == network.SlotNIC {
		return 1
	}
	return 0
}

// takenFilter returns the filter of IDs in use. The IDs of a shared device have no meaning, so they are
// not filtered.
func (o candidate) takenFilter(taken TakenFunc) func(network.TenantSlot) bool {
	if o.kind == network.SlotNIC || taken == nil {
		return nil
	}
	return taken
}

// choosePlugin returns a slot without a device: a plugin finds its device itself.
func (w NetworkRequest) choosePlugin(id string, from Config) (Choice, error) {
	if id == "" {
		return Choice{}, pluginNotPermittedError(w)
	}
	if w.Device != "" || w.DevicePool != "" {
		return Choice{}, deviceOfPluginError(w)
	}
	slot, ok := from.lowestFree(network.SlotPlugin, w.Type, network.VNIRanges{{First: 1, Last: maxShared}}, nil)
	if !ok {
		return Choice{}, exhaustedError(w, []candidate{{config: from, kind: network.SlotPlugin, device: w.Type}})
	}
	return Choice{Config: from, Slot: slot, NetworkID: id}, nil
}

func deviceOfPluginError(w NetworkRequest) error {
	path, value := optionPath("host_device"), w.Device
	if value == "" {
		path, value = optionPath("device_pool"), w.DevicePool
	}
	return invalidError(path, value, "must be empty, because CNI plugin %s finds its device itself: leave it out", w.Type)
}

func pluginNotPermittedError(w NetworkRequest) error {
	return invalidError(typePath(), w.Type,
		"must be in networkIds of a TenantConfig for this namespace, because another CNI plugin serves it: use ipvlan or macvlan, or ask a netadmin to add it")
}

// isDelegated reports whether a type is another CNI plugin.
func isDelegated(networkType string) bool { return (&network.Network{Type: networkType}).Delegates() }

// NetworkID returns the NetworkID of the namespace's TenantConfigs for the type, or "". The error is a
// *network.InvalidError with two TenantConfigs that differ.
func NetworkID(w NetworkRequest, configs []Config) (string, error) {
	id, _, err := w.networkID(configsFor(configs, w.NamespaceLabels))
	return id, err
}

// networkID returns the NetworkID of networkIds for the type, and its TenantConfig.
func (w NetworkRequest) networkID(configs []Config) (id string, from Config, err error) {
	for _, c := range configs {
		other, ok := c.NetworkIDs[w.Type]
		switch {
		case !ok:
		case id == "":
			id, from = other, c
		case other != id:
			return "", Config{}, networkIDsDifferError(w, id, other, from, c)
		}
	}
	return id, from, nil
}

func networkIDsDifferError(w NetworkRequest, id, other string, a, b Config) error {
	return invalidError(typePath(), w.Type,
		"must have one NetworkID, but TenantConfigs %s and %s are both for namespace %s, and networkIds[%s] is %q in one and %q in the other: ask a netadmin to make them agree",
		a.Name, b.Name, w.Namespace, w.Type, id, other)
}

// noDeviceError is the error if the requested device does not exist, or if no device matches the type.
func noDeviceError(w NetworkRequest, configs []Config) error {
	var names []string
	for _, c := range configs {
		for _, d := range c.Devices {
			if (NetworkRequest{Type: w.Type}).matchesDevice(d) && !slices.Contains(names, d.Name) {
				names = append(names, d.Name)
			}
		}
	}
	advice := "leave it out; no device matches " + w.Type
	if len(names) > 0 {
		advice = "use " + strings.Join(names, ", ") + ", or leave it out"
	}
	switch {
	case w.Device != "":
		return invalidError(optionPath("host_device"), w.Device, "must be a device of a TenantConfig for this namespace: %s", advice)
	case w.DevicePool != "":
		return invalidError(optionPath("device_pool"), w.DevicePool, "must be a device pool of a TenantConfig for this namespace: %s", advice)
	}
	needed := "a NIC"
	if w.Type == v1.TypeSRIOV {
		needed = "a device pool, with VLANs or without IDs"
	}
	return invalidError(typePath(), w.Type, "must have %s in a TenantConfig for this namespace, and there is none: use another type, or ask a netadmin for it", needed)
}

func exhaustedError(w NetworkRequest, candidates []candidate) error {
	var full []string
	for _, o := range candidates {
		if o.kind != network.SlotNIC {
			full = append(full, fmt.Sprintf("%s %s of %s (%d reserved)", o.kind, o.ranges, o.device, o.used()))
		}
	}
	return invalidError(typePath(), w.Type, "must have a free ID, and every ID that this namespace may have is in use: %s; delete a network, or ask a netadmin for more",
		strings.Join(full, ", "))
}

func noTenantConfigError(w NetworkRequest) error {
	return invalidError(field.NewPath("metadata", "namespace"), w.Namespace,
		"must have a TenantConfig, and no TenantConfig is for this namespace: ask a netadmin for one, or for a ClusterNetwork that allows the namespace")
}

// invalidError is a *network.InvalidError with one field.
func invalidError(path *field.Path, value any, rule string, args ...any) error {
	return &network.InvalidError{Faults: field.ErrorList{field.Invalid(path, value, fmt.Sprintf(rule, args...))}}
}

func optionPath(name string) *field.Path { return field.NewPath("spec", "Options", name) }

func typePath() *field.Path { return field.NewPath("spec", "NetworkType") }
