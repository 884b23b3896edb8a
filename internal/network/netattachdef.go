// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// KindNetworkAttachmentDefinition is the kind of network that the Network Plumbing Working Group's
// standard has.
const KindNetworkAttachmentDefinition = "NetworkAttachmentDefinition"

// maxCNIConfig bounds what is read of a spec.config, in bytes.
const maxCNIConfig = 64 << 10

// cniConfig is what matters of a CNI configuration, or of a list's plugin.
type cniConfig struct {
	Type    string      `json:"type"`
	Master  string      `json:"master"`
	VLAN    *int        `json:"vlan"`
	VXLAN   *int        `json:"vxlan"`
	MTU     int         `json:"mtu"`
	Plugins []cniConfig `json:"plugins"`
}

// FromNetworkAttachmentDefinition reads what a NetworkAttachmentDefinition's spec.config asks of the
// host's links: keys vlan or vxlan beside master, of one plugin or of a list's first
// that has them. Nil says that it asks for none; a plugin that has no master, or sets
// the VLAN of a virtual function, means something else by vlan. The model has no
// addresses: these are the plugin's. Its link is named after its identity, since
// definitions in many namespaces have the same name.
func FromNetworkAttachmentDefinition(meta *metav1.ObjectMeta, config string) (*Network, error) {
	ref := Ref{Kind: KindNetworkAttachmentDefinition, Namespace: meta.Namespace, Name: meta.Name}
	if len(config) > maxCNIConfig {
		return nil, fmt.Errorf("read %s: %w: spec.config has %d bytes, want at most %d", ref, ErrInvalid, len(config), maxCNIConfig)
	}
	var c cniConfig
	if config == "" {
		return nil, nil // the configuration is a file on the nodes
	}
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return nil, fmt.Errorf("read %s: %w: spec.config: %w", ref, ErrInvalid, err)
	}
	for _, p := range append([]cniConfig{c}, c.Plugins...) {
		if p.Master != "" && p.Type != v1.TypeSRIOV && (p.VLAN != nil || p.VXLAN != nil) {
			n, err := p.toNetwork(ref)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w: spec.config: %w", ref, ErrInvalid, err)
			}
			n.UID, n.Generation, n.Created, n.Deleting = string(meta.UID), meta.Generation, meta.CreationTimestamp.Time, meta.DeletionTimestamp != nil
			return n, nil
		}
	}
	return nil, nil
}

// toNetwork checks the keys as those of a network object are.
func (p *cniConfig) toNetwork(ref Ref) (*Network, error) {
	n := &Network{Ref: ref, Type: p.Type, Device: p.Master, Prefix: defaultPrefix, MTU: p.MTU}
	switch {
	case p.VLAN != nil && p.VXLAN != nil:
		return nil, fmt.Errorf("vlan %d and vxlan %d: use one of them", *p.VLAN, *p.VXLAN)
	case !validInterfaceName(p.Master):
		return nil, fmt.Errorf("master %.50q is no name of a NIC: want at most 15 bytes without '/' and white space", p.Master)
	case p.MTU != 0 && (p.MTU < minMTU || p.MTU > maxMTU):
		return nil, fmt.Errorf("mtu %d: want %d to %d", p.MTU, minMTU, maxMTU)
	case p.VLAN != nil:
		n.VLAN = *p.VLAN
		if n.VLAN < 1 || n.VLAN > maxVLAN {
			return nil, fmt.Errorf("vlan %d: want 1 to %d", n.VLAN, maxVLAN)
		}
		n.ID = p.Master
	default:
		n.VXLAN = *p.VXLAN
		if n.VXLAN < 1 || n.VXLAN > maxVXLAN {
			return nil, fmt.Errorf("vxlan %d: want 1 to %d", n.VXLAN, maxVXLAN)
		}
		n.ID = strconv.Itoa(n.VXLAN)
	}
	if len(n.LinkName()) > maxLinkName {
		return nil, fmt.Errorf("link name %s is over %d bytes: use a ClusterNetwork with a NetworkID of 10 characters or fewer for this VLAN", n.LinkName(), maxLinkName)
	}
	return n, nil
}
