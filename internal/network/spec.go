// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// FromObject calls FromClusterNetwork, FromTenantNetwork or FromDanmNet according to obj's type.
func FromObject(obj metav1.Object) (*Network, error) {
	switch o := obj.(type) {
	case *v1.ClusterNetwork:
		return FromClusterNetwork(o)
	case *v1.TenantNetwork:
		return FromTenantNetwork(o)
	case *v1.DanmNet:
		return FromDanmNet(o)
	}
	return nil, fmt.Errorf("read network from %T: %w: must be a ClusterNetwork, TenantNetwork or DanmNet", obj, ErrInvalid)
}

// FromClusterNetwork checks every rule that needs no other object, and returns the model, or an
// *InvalidError with all faults.
func FromClusterNetwork(o *v1.ClusterNetwork) (*Network, error) {
	return fromSpec(v1.KindClusterNetwork, &o.ObjectMeta, &o.Spec)
}

// FromTenantNetwork is FromClusterNetwork for a TenantNetwork.
func FromTenantNetwork(o *v1.TenantNetwork) (*Network, error) {
	return fromSpec(v1.KindTenantNetwork, &o.ObjectMeta, &o.Spec)
}

// FromDanmNet is FromClusterNetwork for a DanmNet.
func FromDanmNet(o *v1.DanmNet) (*Network, error) {
	return fromSpec(v1.KindDanmNet, &o.ObjectMeta, &o.Spec)
}

func fromSpec(kind string, meta *metav1.ObjectMeta, spec *v1.NetworkSpec) (*Network, error) {
	n := &Network{
		Ref:            Ref{Kind: kind, Namespace: meta.Namespace, Name: meta.Name},
		UID:            string(meta.UID),
		Generation:     meta.Generation,
		Created:        meta.CreationTimestamp.Time,
		Deleting:       meta.DeletionTimestamp != nil,
		ID:             spec.NetworkID,
		Type:           backendType(spec.NetworkType),
		AllowedTenants: slices.Clone(spec.AllowedTenants),
	}
	if kind == v1.KindTenantNetwork {
		n.Assignment = meta.Annotations[v1.AssignedAnnotation]
	}
	var f faults
	path := field.NewPath("spec")
	checkNames(&f, path, spec)
	checkTenants(&f, path.Child("AllowedTenants"), kind, spec.AllowedTenants)
	readOptions(&f, path, spec, n)
	if err := f.err(n.Ref.String()); err != nil {
		return nil, err
	}
	return n, nil
}

func checkNames(f *faults, path *field.Path, spec *v1.NetworkSpec) {
	if !hostSafeName.MatchString(spec.NetworkID) {
		f.invalid(path.Child("NetworkID"), spec.NetworkID, "must be a name for a link or a file on the nodes: "+hostSafeNameRule)
	}
	if spec.NetworkType != "" && !hostSafeName.MatchString(spec.NetworkType) {
		f.invalid(path.Child("NetworkType"), spec.NetworkType,
			"must be ipvlan, macvlan, sriov or the name of a CNI plugin: "+hostSafeNameRule)
	}
}

func checkTenants(f *faults, path *field.Path, kind string, tenants []string) {
	if len(tenants) == 0 {
		return
	}
	if kind != v1.KindClusterNetwork {
		f.forbidden(path, "must be empty, because only a ClusterNetwork is shared between namespaces: leave AllowedTenants out, or use a ClusterNetwork")
	}
	if len(tenants) > maxTenants {
		f.list = append(f.list, field.TooMany(path, len(tenants), maxTenants))
	}
	for i, t := range tenants {
		if utf8.RuneCountInString(t) > maxTenantName {
			f.list = append(f.list, field.TooLong(path.Index(i), t, maxTenantName))
		}
	}
}

func readOptions(f *faults, spec *field.Path, s *v1.NetworkSpec, n *Network) {
	o, path := &s.Options, spec.Child("Options")
	n.Device, n.DevicePool = o.Device, o.DevicePool
	n.VLAN, n.VXLAN = int(o.VLAN), int(o.VXLAN)
	n.Trunk = o.Trunk
	n.MTU, n.Table = int(o.MTU), int(o.RTTables)
	n.Prefix = o.Prefix
	if n.Prefix == "" {
		n.Prefix = defaultPrefix
	}
	checkParent(f, path, n)
	checkVNI(f, spec, n)
	checkTrunk(f, spec, n)
	readSRIOV(f, path.Child("sriov"), o.SRIOV, n)
	checkNumbers(f, path, n)
	checkBitmaps(f, path, o)
	readConflictProbe(f, path, o, n)
	readSourceGuard(f, path.Child("source_guard"), o, n)
	n.V4 = readSubnet(f, path, optionsV4(o))
	n.V6 = readSubnet(f, path, optionsV6(o))
	readStaticPool(f, path.Child("static_pool"), o, n)
	if n.Delegates() {
		// Another plugin sets addresses, routes and the MTU itself. Admission rejects these options in
		// new networks; a stored one must work as before.
		n.V4, n.V6, n.Table, n.MTU = nil, nil, 0, 0
	}
}

func checkParent(f *faults, path *field.Path, n *Network) {
	device, pool := path.Child("host_device"), path.Child("device_pool")
	if n.Device != "" && !validInterfaceName(n.Device) {
		f.invalid(device, n.Device, `must be the name of a NIC: use at most 15 bytes without "/", ":" or white space`)
	}
	if utf8.RuneCountInString(n.DevicePool) > maxPool {
		f.list = append(f.list, field.TooLong(pool, n.DevicePool, maxPool))
	}
	if n.Device != "" && n.DevicePool != "" {
		f.forbidden(device, "must not be set with device_pool: leave out host_device \""+
			n.Device+"\" or device_pool \""+n.DevicePool+"\"")
	}
	if !n.UsesDevicePool() {
		return
	}
	if n.DevicePool == "" {
		f.required(pool, `must name the resource of a device plugin for NetworkType sriov, such as "example.com/sriov_ens4"`)
	}
	if n.Device != "" {
		f.forbidden(device, "must not be set for NetworkType sriov, which takes devices from device_pool: leave host_device \""+n.Device+"\" out")
	}
}

// Ranges of the numbers in Options. 0 means that the option is not set.
const (
	maxVLAN  = 4094     // IEEE 802.1Q reserves 0 and 4095
	maxVXLAN = 16777214 // RFC 7348: 24 bits; DANM reserves the last value
	minMTU   = 1280     // RFC 8200
	maxMTU   = 9216
)

func checkVNI(f *faults, spec *field.Path, n *Network) {
	path := spec.Child("Options")
	if n.VLAN < 0 || n.VLAN > maxVLAN {
		f.invalid(path.Child("vlan"), n.VLAN, "must be between 1 and 4094")
	}
	if n.VXLAN < 0 || n.VXLAN > maxVXLAN {
		f.invalid(path.Child("vxlan"), n.VXLAN, "must be between 1 and 16777214")
	}
	if n.VLAN != 0 && n.VXLAN != 0 {
		f.forbidden(path.Child("vlan"), "must not be set with vxlan: leave one of vlan and vxlan out")
	}
	if n.VXLAN != 0 && n.Type == v1.TypeSRIOV { // the admission policy sriov-networks.danm.io has this rule
		f.forbidden(path.Child("vxlan"), "must not be set for NetworkType sriov, because a virtual function has no VXLAN link: use vlan, or leave vxlan out")
	}
	if (n.VLAN != 0 || n.VXLAN != 0) && n.Type != v1.TypeSRIOV && len(n.ID) > maxLinkID {
		f.invalid(spec.Child("NetworkID"), n.ID,
			"must be short enough for the name of a VLAN or VXLAN link, which has at most 15 bytes: use at most 10 characters")
	}
}

// checkTrunk allows a trunk to netadmins only, and only where it has an effect. It requires
// AllowedTenants, which objects in a namespace cannot have.
func checkTrunk(f *faults, spec *field.Path, n *Network) {
	if !n.Trunk {
		return
	}
	path := spec.Child("Options", "trunk")
	if n.VLAN != 0 || n.VXLAN != 0 {
		f.forbidden(path, "must not be set with vlan or vxlan: leave out trunk, or vlan and vxlan")
	}
	if n.Device == "" || n.Type != v1.TypeIPVLAN && n.Type != v1.TypeMACVLAN {
		f.forbidden(path, "must be on a NIC with NetworkType ipvlan or macvlan: set host_device and one of these types, or leave trunk out")
	}
	if len(n.AllowedTenants) == 0 {
		f.forbidden(path, "must come with AllowedTenants, because Pods on a trunk reach every VLAN of the NIC: list the namespaces in AllowedTenants of a ClusterNetwork, or leave trunk out")
	}
}

// readSRIOV reads the settings of virtual functions. Tenants do not choose them, because they affect the
// NIC and the networks of others on it.
func readSRIOV(f *faults, path *field.Path, o *v1.SRIOVOptions, n *Network) {
	if o == nil {
		return
	}
	if n.Ref.Kind == v1.KindTenantNetwork {
		f.forbidden(path, "must not be set in a TenantNetwork, because tenants do not choose settings of the NICs: leave sriov out, or ask a netadmin for a ClusterNetwork")
	}
	if n.Type != v1.TypeSRIOV {
		f.forbidden(path, "must not be set for this NetworkType, because only virtual functions have these settings: use NetworkType sriov, or leave sriov out")
	}
	n.SRIOV = SRIOV{
		VLANQoS:     int(o.VLANQoS),
		SpoofCheck:  copyBool(o.SpoofCheck),
		Trust:       copyBool(o.Trust),
		LinkState:   o.LinkState,
		MinTxRate:   int(o.MinTxRate),
		MaxTxRate:   int(o.MaxTxRate),
		Promiscuous: o.Promiscuous,
	}
	readVLANProtocol(f, path.Child("vlan_protocol"), o.VLANProtocol, n)
	checkSRIOV(f, path, n)
}

// copyBool copies what a pointer points to, because an informer's cache owns the object.
func copyBool(b *bool) *bool {
	if b == nil {
		return nil
	}
	return new(*b)
}

func readVLANProtocol(f *faults, path *field.Path, written string, n *Network) {
	switch strings.ToLower(written) {
	case "":
		return
	case "802.1q":
		n.SRIOV.VLANProtocol = EtherType8021Q
	case "802.1ad":
		n.SRIOV.VLANProtocol = EtherType8021AD
	default:
		f.invalid(path, written, "must be 802.1q or 802.1ad")
	}
	if n.VLAN == 0 {
		f.forbidden(path, "must come with vlan, because it is the protocol of the VLAN tag: set vlan, or leave vlan_protocol out")
	}
}

func checkSRIOV(f *faults, path *field.Path, n *Network) {
	s := &n.SRIOV
	if s.VLANQoS < 0 || s.VLANQoS > 7 {
		f.invalid(path.Child("vlan_qos"), s.VLANQoS, "must be between 0 and 7")
	}
	if s.VLANQoS != 0 && n.VLAN == 0 {
		f.forbidden(path.Child("vlan_qos"), "must come with vlan, because the priority is in the VLAN tag: set vlan, or leave vlan_qos out")
	}
	switch s.LinkState {
	case "", "auto", "enable", "disable":
	default:
		f.invalid(path.Child("link_state"), s.LinkState, "must be auto, enable or disable")
	}
	for _, r := range []struct {
		name string
		rate int
	}{{"min_tx_rate", s.MinTxRate}, {"max_tx_rate", s.MaxTxRate}} {
		if r.rate < 0 {
			f.invalid(path.Child(r.name), r.rate, "must be at least 1 Mbit/s: leave it out to keep the function's rate")
		}
	}
	if s.MaxTxRate != 0 && s.MinTxRate > s.MaxTxRate {
		f.invalid(path.Child("min_tx_rate"), s.MinTxRate, "must not be above max_tx_rate: use a lower min_tx_rate, or a higher max_tx_rate")
	}
	if s.Promiscuous && (s.Trust == nil || !*s.Trust) {
		f.forbidden(path.Child("promiscuous"), "must come with trust: true, because drivers ignore or reject it otherwise: set trust to true, or leave promiscuous out")
	}
}

func checkNumbers(f *faults, path *field.Path, n *Network) {
	if !prefixPattern.MatchString(n.Prefix) {
		f.invalid(path.Child("container_prefix"), n.Prefix,
			`must be the beginning of interface names: use a letter, then at most 13 letters, digits, "_" or "-"`)
	}
	if n.MTU != 0 && (n.MTU < minMTU || n.MTU > maxMTU) {
		f.invalid(path.Child("mtu"), n.MTU, "must be between 1280 and 9216 bytes: leave it out for the parent's MTU")
	}
	if n.Table < 0 || n.Table >= 253 && n.Table <= 255 {
		f.invalid(path.Child("rt_tables"), n.Table, "must not be one of the kernel's tables 253 to 255: use 0 to 252, or 256 and up")
	}
}

// maxBitmap is the base64 of one bit per address of DANM's largest subnet, a /9.
const maxBitmap = 1398104

// checkBitmaps bounds the bitmaps of a DANM network that is taken over.
func checkBitmaps(f *faults, path *field.Path, o *v1.NetworkOptions) {
	check := func(name, bitmap string) {
		if len(bitmap) > maxBitmap {
			f.list = append(f.list, field.TooLong(path.Child(name), "", maxBitmap))
		}
	}
	check("alloc", o.Alloc)
	check("alloc6", o.Alloc6)
}

// readConflictProbe enables probes for MACVLAN by default: each of its Pods has a MAC of its own, as
// other machines on the network do.
func readConflictProbe(f *faults, path *field.Path, o *v1.NetworkOptions, n *Network) {
	n.ConflictProbe = n.Type == v1.TypeMACVLAN
	if o.ConflictProbe != nil {
		n.ConflictProbe = *o.ConflictProbe
	}
	if n.ConflictProbe && n.Type != v1.TypeMACVLAN && n.Type != v1.TypeIPVLAN {
		f.forbidden(path.Child("conflict_probe"), "must not be true for this NetworkType, because only ipvlan and macvlan probe for address conflicts: leave it out")
	}
}

// readSourceGuard enables the guard for TenantNetworks by default. The guard works on Patchbay's VLAN
// and VXLAN links only: on a NIC the node's own packets would be dropped.
func readSourceGuard(f *faults, path *field.Path, o *v1.NetworkOptions, n *Network) {
	slaves := n.Type == v1.TypeMACVLAN || n.Type == v1.TypeIPVLAN
	n.SourceGuard = n.Ref.Kind == v1.KindTenantNetwork && slaves && (n.VLAN != 0 || n.VXLAN != 0)
	if o.SourceGuard == nil {
		return
	}
	n.SourceGuard, n.SourceGuardSet = *o.SourceGuard, *o.SourceGuard
	if !n.SourceGuard {
		return
	}
	if !slaves {
		f.forbidden(path, "must not be true for this NetworkType, because only Pods of ipvlan and macvlan are guarded: leave it out")
	}
	if n.Device != "" && n.VLAN == 0 && n.VXLAN == 0 {
		f.forbidden(path, "must come with vlan or vxlan, because Pods on a NIC itself are not guarded: set vlan or vxlan, or leave it out")
	}
}

// backendType returns Patchbay's own backends in lower case, and other types as written.
func backendType(written string) string {
	switch lower := strings.ToLower(written); lower {
	case "":
		return v1.TypeIPVLAN
	case v1.TypeIPVLAN, v1.TypeMACVLAN, v1.TypeSRIOV:
		return lower
	}
	return written
}

// BackendTypeOf returns the Network.Type of a spec, which need not be valid.
func BackendTypeOf(s *v1.NetworkSpec) string { return backendType(s.NetworkType) }
