// SPDX-License-Identifier: Apache-2.0

package netwatcher

import "errors"

// Reasons why a network has no link on this node, for errors.Is. The errors that wrap them name the
// network, the link and the remedy.
var (
	// errNoNIC means that the node has no NIC of the name.
	errNoNIC = errors.New("NIC not found on this node")
	// errBridgePort means that the NIC is a port of a bridge, bond or switch, which gets all its
	// frames.
	errBridgePort = errors.New("NIC is a port of another link")
	// errNoAddress means that a NIC has no global address for a VTEP.
	errNoAddress = errors.New("NIC has no global address for VXLAN")
	// errTaken means that another link or network has the name or the identity.
	errTaken = errors.New("taken")
	// errMTUTooLarge means that a network requests a larger MTU than its link's.
	errMTUTooLarge = errors.New("mtu too large")
	// errNetworkChanged means that the network changed, and uses another link now.
	errNetworkChanged = errors.New("network was changed meanwhile")
	// ErrNetworksIncomplete means that there may be more networks than the known ones.
	ErrNetworksIncomplete = errors.New("not all networks are known")
	// ErrFilterUnsupported means that the kernel cannot filter VXLAN packets.
	ErrFilterUnsupported = errors.New("the kernel has no nf_tables with the family inet (CONFIG_NF_TABLES_INET)")
	// ErrTagFilterUnsupported means that the kernel cannot filter VLAN tags.
	ErrTagFilterUnsupported = errors.New("the kernel has no filter for VLAN tags (CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF)")
	// ErrSourceGuardUnsupported means that the kernel cannot filter the egress of a link.
	ErrSourceGuardUnsupported = errors.New("the kernel has no nf_tables with an egress hook (Linux 5.16, CONFIG_NF_TABLES_NETDEV, CONFIG_NETFILTER_EGRESS)")
	// errNoLink means that the network has no host device.
	errNoLink = errors.New("network has no host_device")
)

// errTagsNotFiltered marks the failure of OpFilterTags: the link works without the filter.
var errTagsNotFiltered = errors.New("VLAN tags that Pods send are not filtered")

// errSourcesNotGuarded marks the failure of the source guard.
var errSourcesNotGuarded = errors.New("frames of Pods with the MAC or address of others are not dropped")

// conflictError is a conflict with an older network, see network.Conflicts. It is also an errTaken.
type conflictError struct{ error }

func (e conflictError) Is(target error) bool { return target == errTaken }

func (e conflictError) Unwrap() error { return e.error }
