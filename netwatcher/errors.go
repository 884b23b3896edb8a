// SPDX-License-Identifier: Apache-2.0

package netwatcher

import "errors"

// Why a network has no link on this node; errors.Is holds through the text that
// names the network, the link and what would help.
var (
	// ErrNoNIC says that the node has no NIC of that name.
	ErrNoNIC = errors.New("NIC not found on this node")
	// ErrBridgePort says that the NIC is a port of a bridge, bond or switch, which
	// gets all its frames.
	ErrBridgePort = errors.New("NIC is a port of another link")
	// ErrNoAddress says that a NIC has no global address to be a VTEP.
	ErrNoAddress = errors.New("NIC has no global address for VXLAN")
	// ErrTaken says that a name or an identity is taken for something else.
	ErrTaken = errors.New("taken")
	// ErrMTUTooLarge says that a network asks for more than its link carries.
	ErrMTUTooLarge = errors.New("mtu too large")
	// ErrNetworkChanged says that the network asks for another link by now.
	ErrNetworkChanged = errors.New("network was changed meanwhile")
	// ErrNetworksIncomplete says that there may be more networks than are known.
	ErrNetworksIncomplete = errors.New("not all networks are known")
	// ErrFilterUnsupported says that the kernel cannot filter VXLAN packets.
	ErrFilterUnsupported = errors.New("the kernel has no nf_tables with the family inet (CONFIG_NF_TABLES_INET)")
	// ErrTagFilterUnsupported says that the kernel cannot filter VLAN tags.
	ErrTagFilterUnsupported = errors.New("the kernel has no filter for VLAN tags (CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF)")
	// ErrSourceGuardUnsupported says that the kernel cannot filter what leaves by a link.
	ErrSourceGuardUnsupported = errors.New("the kernel has no nf_tables with an egress hook (Linux 5.16, CONFIG_NF_TABLES_NETDEV, CONFIG_NETFILTER_EGRESS)")
	// ErrNoLink says that the network has no host device.
	ErrNoLink = errors.New("network has no host_device")
)

// errTagsNotFiltered marks the failure of an Untag: the link works, and is open.
var errTagsNotFiltered = errors.New("VLAN tags that Pods send are not filtered")

// errSourcesNotGuarded marks the failure of the source guard.
var errSourcesNotGuarded = errors.New("frames of Pods with the MAC or address of others are not dropped")

// conflictError is what older networks have against one, see network.Conflicts; it
// is an ErrTaken, too.
type conflictError struct{ error }

func (e conflictError) Is(target error) bool { return target == ErrTaken }

func (e conflictError) Unwrap() error { return e.error }
