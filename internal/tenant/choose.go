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

// NetworkRequest is what a new TenantNetwork asks for.
type NetworkRequest struct {
	// Namespace of the network, and the namespace's labels.
	Namespace       string
	NamespaceLabels map[string]string
	// Type is as in network.Network.
	Type string
	// Device or DevicePool is what the tenant would like; at most one is set.
	Device, DevicePool string
}

// Choice is what a TenantNetwork gets.
type Choice struct {
	// Config is the TenantConfig that it is drawn from.
	Config Config
	// Slot is free.
	Slot network.TenantSlot
	// NetworkID is what networkIds says for the type; empty leaves the tenant's.
	NetworkID string
}

// Apply writes what was chosen into a network's spec.
func (c Choice) Apply(s *v1.NetworkSpec) {
	setParent(&s.Options, c.Slot.Parent())
	if c.NetworkID != "" {
		s.NetworkID = c.NetworkID
	}
}

// TakenFunc reports whether a network cannot be at a place: another one is there without a
// reservation, or has the name that its link would get.
type TakenFunc func(p network.TenantSlot) bool

// maxShared is how many networks share a device that has no IDs, or a plugin.
const maxShared = 1 << 20

// ChooseSlot finds a free place for a network: the device with the fewest IDs in use,
// and its lowest free ID. A device without IDs comes after all that have some: its
// networks share one segment. Taken may be nil. The error is a *network.InvalidError.
func ChooseSlot(w NetworkRequest, configs []Config, taken TakenFunc) (Choice, error) {
	mine := configsFor(configs, w.NamespaceLabels)
	if len(mine) == 0 {
		return Choice{}, w.errNoTenantConfig()
	}
	id, from, err := w.networkID(mine)
	if err != nil {
		return Choice{}, err
	}
	if w.delegates() {
		return w.choosePlugin(id, from)
	}
	offers := w.candidates(mine)
	if len(offers) == 0 {
		return Choice{}, w.errNoDevice(mine)
	}
	slices.SortStableFunc(offers, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.used(), b.used()))
	})
	for _, o := range offers {
		if o.kind == network.SlotNIC && offers[0].kind != network.SlotNIC {
			break // better refused than on a shared segment by surprise
		}
		if place, ok := o.config.lowestFree(o.kind, o.device, o.ranges, o.takenFilter(taken)); ok {
			return Choice{Config: o.config, Slot: place, NetworkID: id}, nil
		}
	}
	return Choice{}, w.errExhausted(offers)
}

// candidates are the devices that suit the type and the tenant's own choice.
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
	return slices.DeleteFunc(all, func(o candidate) bool { return o.kind == network.SlotVXLAN && w.Type == v1.TypeSRIOV })
}

// matchesDevice: SR-IOV takes a device pool, the others a NIC unless they ask for a pool.
func (w NetworkRequest) matchesDevice(d network.TenantDevice) bool {
	pool := strings.Contains(d.Name, "/")
	switch {
	case w.Device != "":
		return !pool && d.Name == w.Device
	case w.DevicePool != "":
		return pool && d.Name == w.DevicePool
	}
	return pool == (w.Type == v1.TypeSRIOV)
}

func candidatesOf(c Config, d network.TenantDevice) []candidate {
	switch {
	case len(d.VLANs) > 0:
		return []candidate{{c, network.SlotVLAN, d.Name, d.VLANs}}
	case len(d.VXLANs) > 0:
		return []candidate{{c, network.SlotVXLAN, d.Name, d.VXLANs}}
	}
	return []candidate{{c, network.SlotNIC, d.Name, network.VNIRanges{{First: 1, Last: maxShared}}}}
}

// candidate is a device that would do.
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

// takenFilter leaves out IDs that are taken; those of a shared device only count.
func (o candidate) takenFilter(taken TakenFunc) func(network.TenantSlot) bool {
	if o.kind == network.SlotNIC || taken == nil {
		return nil
	}
	return taken
}

// choosePlugin: a plugin has its own ways to a device, so it gets none of ours.
func (w NetworkRequest) choosePlugin(id string, from Config) (Choice, error) {
	if id == "" {
		return Choice{}, w.errPluginNotOffered()
	}
	if w.Device != "" || w.DevicePool != "" {
		return Choice{}, w.errDeviceOfPlugin()
	}
	place, ok := from.lowestFree(network.SlotPlugin, w.Type, network.VNIRanges{{First: 1, Last: maxShared}}, nil)
	if !ok {
		return Choice{}, w.errExhausted([]candidate{{config: from, kind: network.SlotPlugin, device: w.Type}})
	}
	return Choice{Config: from, Slot: place, NetworkID: id}, nil
}

func (w NetworkRequest) errDeviceOfPlugin() error {
	path, value := optionPath("host_device"), w.Device
	if value == "" {
		path, value = optionPath("device_pool"), w.DevicePool
	}
	return invalidError(path, value, "CNI plugin %s finds its device by itself: leave it out", w.Type)
}

func (w NetworkRequest) errPluginNotOffered() error {
	return invalidError(typePath(), w.Type,
		"is a CNI plugin that no TenantConfig for this namespace has in networkIds: use ipvlan or macvlan, or ask a netadmin for it")
}

func (w NetworkRequest) delegates() bool { return (&network.Network{Type: w.Type}).Delegates() }

// NetworkID returns what the namespace's TenantConfigs say for the type, or "". The
// error is a *network.InvalidError that names two that differ.
func NetworkID(w NetworkRequest, configs []Config) (string, error) {
	id, _, err := w.networkID(configsFor(configs, w.NamespaceLabels))
	return id, err
}

// networkID returns what networkIds says for the type, and who says so.
func (w NetworkRequest) networkID(configs []Config) (id string, from Config, err error) {
	for _, c := range configs {
		other, ok := c.NetworkIDs[w.Type]
		switch {
		case !ok:
		case id == "":
			id, from = other, c
		case other != id:
			return "", Config{}, w.errNetworkIDsDiffer(id, other, from, c)
		}
	}
	return id, from, nil
}

func (w NetworkRequest) errNetworkIDsDiffer(id, other string, a, b Config) error {
	return invalidError(typePath(), w.Type,
		"TenantConfigs %s and %s are both for namespace %s, and networkIds[%s] is %q in one and %q in the other: ask a netadmin to make them agree",
		a.Name, b.Name, w.Namespace, w.Type, id, other)
}

// errNoDevice tells an asked device that is not there from none that suits.
func (w NetworkRequest) errNoDevice(configs []Config) error {
	var names []string
	for _, c := range configs {
		for _, d := range c.Devices {
			if (NetworkRequest{Type: w.Type}).matchesDevice(d) && !slices.Contains(names, d.Name) {
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
		return invalidError(optionPath("host_device"), w.Device, "is not among the devices of a TenantConfig for this namespace: %s", have)
	case w.DevicePool != "":
		return invalidError(optionPath("device_pool"), w.DevicePool, "is not among the device pools of a TenantConfig for this namespace: %s", have)
	}
	want := "a NIC"
	if w.Type == v1.TypeSRIOV {
		want = "a device pool, with VLANs or without IDs"
	}
	return invalidError(typePath(), w.Type, "needs %s, and no TenantConfig for this namespace has one: use another type, or ask a netadmin for it", want)
}

func (w NetworkRequest) errExhausted(offers []candidate) error {
	var full []string
	for _, o := range offers {
		if o.kind != network.SlotNIC {
			full = append(full, fmt.Sprintf("%s %s of %s (%d reserved)", o.kind, o.ranges, o.device, o.used()))
		}
	}
	return invalidError(typePath(), w.Type, "every ID that this namespace may have is in use: %s; delete a network, or ask a netadmin for more",
		strings.Join(full, ", "))
}

func (w NetworkRequest) errNoTenantConfig() error {
	return invalidError(field.NewPath("metadata", "namespace"), w.Namespace,
		"no TenantConfig is for this namespace, so there is nothing to assign: ask a netadmin for one, or for a ClusterNetwork that allows the namespace")
}

// invalidError names the field, its value, and what would be accepted.
func invalidError(path *field.Path, value any, rule string, args ...any) error {
	return &network.InvalidError{Faults: field.ErrorList{field.Invalid(path, value, fmt.Sprintf(rule, args...))}}
}

func optionPath(name string) *field.Path { return field.NewPath("spec", "Options", name) }

func typePath() *field.Path { return field.NewPath("spec", "NetworkType") }
