// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// TenantConfig is a TenantConfig that passed validation.
type TenantConfig struct {
	// Name of the TenantConfig.
	Name string
	// Devices that tenants may use, in the object's order.
	Devices []TenantDevice
	// NetworkIDs maps a Network.Type to the NetworkID of TenantNetworks of that type.
	NetworkIDs map[string]string
	// Selector selects namespaces; nil selects all.
	Selector labels.Selector
	// Subnets contain the subnets of TenantNetworks, masked; without any, all subnets are allowed.
	Subnets []netip.Prefix
	// ClusterSubnets are the parts of the cluster's own ranges that TenantNetworks may use.
	ClusterSubnets []netip.Prefix
	// Budgets limit each namespace.
	Budgets Budgets
}

// Budgets are the limits of a namespace for all TenantConfigs together.
type Budgets struct {
	// Networks is the number of networks with a reservation.
	Networks int
	// IDs is the number of VLANs and VXLANs.
	IDs int
	// IDsWithoutNetwork is the number of reservations for networks that do not exist.
	IDsWithoutNetwork int
}

// TenantDevice is a NIC or a device pool, and the VNI ranges on it.
type TenantDevice struct {
	// Name of the NIC or, with a "/", of the device pool.
	Name string
	// VLANs and VXLANs are the IDs for TenantNetworks. At most one of them is not empty. If both
	// are empty, the networks use the device itself.
	VLANs, VXLANs VNIRanges
}

// Bounds of a TenantConfig, for the cost limit of its CEL rules.
const (
	maxDevices     = 256
	maxNetworkIDs  = 64
	maxVXLANRanges = 128 // each range is compared with each other one
	maxSubnets     = 64
)

// FromTenantConfig checks every rule that needs no other object, and returns the model, or an
// *InvalidError with all faults.
func FromTenantConfig(o *v1.TenantConfig) (*TenantConfig, error) {
	var f faults
	t := &TenantConfig{Name: o.Name, NetworkIDs: map[string]string{}}
	devices, ids := field.NewPath("hostDevices"), field.NewPath("networkIds")
	if len(o.HostDevices) == 0 && len(o.NetworkIDs) == 0 {
		f.required(devices, "must not be empty together with networkIds, because tenants would get nothing: name a device in hostDevices, or a NetworkID in networkIds")
	}
	if len(o.HostDevices) > maxDevices {
		f.list = append(f.list, field.TooMany(devices, len(o.HostDevices), maxDevices))
		return nil, f.err("TenantConfig/" + o.Name)
	}
	for i := range o.HostDevices {
		t.Devices = append(t.Devices, readDevice(&f, devices.Index(i), &o.HostDevices[i]))
	}
	checkVXLANs(&f, devices, t.Devices)
	readNetworkIDs(&f, ids, o.NetworkIDs, t.NetworkIDs)
	t.Selector = readSelector(&f, field.NewPath("namespaceSelector"), o.NamespaceSelector)
	t.Subnets = readSubnets(&f, field.NewPath("subnets"), o.Subnets)
	t.ClusterSubnets = readSubnets(&f, field.NewPath("allowedClusterSubnets"), o.AllowedClusterSubnets)
	t.Budgets = readBudgets(&f, field.NewPath("budgets"), o.Budgets)
	if err := f.err("TenantConfig/" + o.Name); err != nil {
		return nil, err
	}
	return t, nil
}

func readDevice(f *faults, path *field.Path, d *v1.HostDevice) TenantDevice {
	td := TenantDevice{Name: d.Name}
	if pool := strings.Contains(d.Name, "/"); !pool && !validInterfaceName(d.Name) || pool && len(d.Name) > maxPool {
		f.invalid(path.Child("name"), d.Name, `must be the name of a NIC (at most 15 bytes without ":" or white space) or, with a "/", the resource of a device plugin`)
	}
	if (d.VNIType == "") != (d.VNIRange == "") {
		f.invalid(path, d.VNIType+d.VNIRange, "must have vniType and vniRange together: set both, or neither")
	}
	limit := maxVXLAN
	switch d.VNIType {
	case "", "vxlan":
	case "vlan":
		limit = maxVLAN
	default:
		f.invalid(path.Child("vniType"), d.VNIType, "must be vlan or vxlan")
	}
	ranges, err := parseVNIRanges(d.VNIRange, limit)
	if err != nil {
		f.invalid(path.Child("vniRange"), d.VNIRange, err.Error())
	}
	if limit == maxVLAN {
		td.VLANs = ranges
	} else {
		td.VXLANs = ranges
	}
	return td
}

// checkVXLANs checks that each VNI belongs to one device: a VNI exists once on a node.
func checkVXLANs(f *faults, path *field.Path, devices []TenantDevice) {
	count := 0
	for _, d := range devices {
		count += len(d.VXLANs)
	}
	if count > maxVXLANRanges {
		f.invalid(path, count, fmt.Sprintf("must have at most %d VXLAN ranges (vniRange) in all: use fewer and wider ones", maxVXLANRanges))
		return
	}
	for i, d := range devices {
		for _, o := range devices[:i] {
			if d.Name != o.Name && d.VXLANs.Overlaps(o.VXLANs) {
				f.invalid(path.Index(i).Child("vniRange"), d.VXLANs.String(),
					fmt.Sprintf("must not overlap that of %s (%s), because a VNI exists once on a node: use disjoint ranges", o.Name, o.VXLANs))
			}
		}
	}
}

func readNetworkIDs(f *faults, path *field.Path, written map[string]v1.TenantNetworkID, into map[string]string) {
	if len(written) > maxNetworkIDs {
		f.list = append(f.list, field.TooMany(path, len(written), maxNetworkIDs))
		return
	}
	ids := toStrings(written)
	for _, key := range sortedKeys(ids) {
		id, backend := ids[key], backendType(key)
		if !hostSafeName.MatchString(key) {
			f.invalid(path.Key(key), key, "must have a key that is a NetworkType: "+hostSafeNameRule)
		}
		if !hostSafeName.MatchString(id) {
			f.invalid(path.Key(key), id, "must be a NetworkID: "+hostSafeNameRule)
		}
		if n := (&Network{Type: backend}); !n.Delegates() && len(id) > maxLinkID {
			f.invalid(path.Key(key), id, "must be short enough for the names of VLAN and VXLAN links, because it is for ipvlan, macvlan or sriov: use at most 10 characters")
		}
		into[backend] = id
	}
}

// readSelector returns nil for a selector that is not set or selects all namespaces.
func readSelector(f *faults, path *field.Path, s *metav1.LabelSelector) labels.Selector {
	if s == nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		f.invalid(path, metav1.FormatLabelSelector(s), "must be a label selector: "+err.Error())
		return nil
	}
	if selector.Empty() {
		return nil
	}
	return selector
}

func readSubnets(f *faults, path *field.Path, written []v1.TenantSubnet) []netip.Prefix {
	if len(written) > maxSubnets {
		f.list = append(f.list, field.TooMany(path, len(written), maxSubnets))
		return nil
	}
	var all []netip.Prefix
	for i, text := range written {
		p, ok := ipv4().parsePrefix(string(text))
		if !ok {
			p, ok = ipv6().parsePrefix(string(text))
		}
		if !ok {
			f.invalid(path.Index(i), text, `must be a subnet with its prefix length, such as "10.0.0.0/8" or "fd00::/32"`)
			continue
		}
		all = append(all, p)
	}
	return all
}

// Default budgets: more than a tenant is likely to need, and too few to exhaust a range that many
// tenants share.
const (
	defaultNetworks      = 256
	defaultIDs           = 64
	maxIDsWithoutNetwork = 2
	minIDsWithoutNetwork = 1
)

func readBudgets(f *faults, path *field.Path, written *v1.TenantBudgets) Budgets {
	b := Budgets{Networks: defaultNetworks, IDs: defaultIDs, IDsWithoutNetwork: maxIDsWithoutNetwork}
	if written == nil {
		return b
	}
	for _, o := range []struct {
		name        string
		value       *int32
		least, most int
		into        *int
	}{
		{"networks", written.Networks, 0, math.MaxInt32, &b.Networks},
		{"ids", written.IDs, 0, math.MaxInt32, &b.IDs},
		{"idsWithoutNetwork", written.IDsWithoutNetwork, minIDsWithoutNetwork, maxIDsWithoutNetwork, &b.IDsWithoutNetwork},
	} {
		switch {
		case o.value == nil:
		case int(*o.value) < o.least:
			f.invalid(path.Child(o.name), *o.value, fmt.Sprintf("must be greater than or equal to %d", o.least))
		case int(*o.value) > o.most:
			f.invalid(path.Child(o.name), *o.value, fmt.Sprintf("must be less than or equal to %d", o.most))
		default:
			*o.into = int(*o.value)
		}
	}
	return b
}

// AppliesTo reports whether the TenantConfig is for namespaces with these labels.
func (t *TenantConfig) AppliesTo(namespaceLabels map[string]string) bool {
	return t.Selector == nil || t.Selector.Matches(labels.Set(namespaceLabels))
}

// UntaggedWarning returns a warning for a network that uses a NIC itself while TenantNetworks have VLANs
// or VXLANs on it, and "" for other networks. With CAP_NET_RAW, which Pods have by default, its Pods
// can send packets with the addresses of VTEPs. They can send frames with any tag if the node's kernel
// has no filter for them, or if another plugin creates their interfaces.
func (t *TenantConfig) UntaggedWarning(n *Network) string {
	link, ok := n.Link()
	if !ok || !link.IsNIC() || len(n.AllowedTenants) > 0 {
		return ""
	}
	i := slices.IndexFunc(t.Devices, func(d TenantDevice) bool { return d.Name == n.Device })
	if i < 0 {
		return ""
	}
	var what, how string
	switch d := &t.Devices[i]; {
	case len(d.VLANs) > 0:
		what, how = "VLANs", "send frames with their tags where a node is not Isolated"
		if n.Delegates() {
			how = "send frames with their tags"
		}
	case len(d.VXLANs) > 0:
		what, how = "VXLANs", "send packets with the source address of a node"
	default:
		return ""
	}
	advice := "set spec.AllowedTenants, or spec.Options.vlan"
	if n.Ref.Kind != v1.KindClusterNetwork {
		advice = "use a ClusterNetwork with spec.AllowedTenants, or set spec.Options.vlan"
	}
	return fmt.Sprintf("host_device %s without vlan: TenantConfig %s gives tenants %s there, and Pods of this network with CAP_NET_RAW can %s: %s",
		n.Device, t.Name, what, how, advice) // clients truncate warnings to 256 bytes
}
