// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/text"
)

// KindNetworkAttachmentDefinition is the network kind of the Network Plumbing Working Group's standard.
const KindNetworkAttachmentDefinition = "NetworkAttachmentDefinition"

// maxCNIConfig bounds a spec.config, in bytes.
const maxCNIConfig = 64 << 10

// cniConfig has the used keys of a CNI configuration, or of a plugin in a list.
type cniConfig struct {
	Type    string      `json:"type"`
	Master  string      `json:"master"`
	VLAN    *int        `json:"vlan"`
	VXLAN   *int        `json:"vxlan"`
	MTU     int         `json:"mtu"`
	Plugins []cniConfig `json:"plugins"`
}

// FromNetworkAttachmentDefinition returns the host link that the spec.config of a
// NetworkAttachmentDefinition needs: the keys vlan or vxlan with master, of one plugin or of the first
// plugin in a list that has them. It returns nil without such a plugin. In plugins without master, or
// of type sriov, vlan has another meaning. The model has no addresses, which the plugin manages. The
// link's name comes from its identity, because definitions in many namespaces have the same name.
func FromNetworkAttachmentDefinition(meta *metav1.ObjectMeta, config string) (*Network, error) {
	ref := Ref{Kind: KindNetworkAttachmentDefinition, Namespace: meta.Namespace, Name: meta.Name}
	if len(config) > maxCNIConfig {
		return nil, fmt.Errorf("read %s: %w: spec.config must have at most %d bytes: got %d", ref, ErrInvalid, maxCNIConfig, len(config))
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

// toNetwork applies the rules of network objects to the keys.
func (p *cniConfig) toNetwork(ref Ref) (*Network, error) {
	n := &Network{Ref: ref, Type: p.Type, Device: p.Master, Prefix: defaultPrefix, MTU: p.MTU}
	switch {
	case p.VLAN != nil && p.VXLAN != nil:
		return nil, fmt.Errorf("vlan %d must not be set with vxlan %d: use one of them", *p.VLAN, *p.VXLAN)
	case !validInterfaceName(p.Master):
		return nil, fmt.Errorf("master %q must be the name of a NIC: use at most 15 bytes without '/' and white space", text.Truncate(p.Master, 50))
	case p.MTU != 0 && (p.MTU < minMTU || p.MTU > maxMTU):
		return nil, fmt.Errorf("mtu %d must be between %d and %d", p.MTU, minMTU, maxMTU)
	case p.VLAN != nil:
		n.VLAN = *p.VLAN
		if n.VLAN < 1 || n.VLAN > maxVLAN {
			return nil, fmt.Errorf("vlan %d must be between 1 and %d", n.VLAN, maxVLAN)
		}
		n.ID = p.Master
	default:
		n.VXLAN = *p.VXLAN
		if n.VXLAN < 1 || n.VXLAN > maxVXLAN {
			return nil, fmt.Errorf("vxlan %d must be between 1 and %d", n.VXLAN, maxVXLAN)
		}
		n.ID = strconv.Itoa(n.VXLAN)
	}
	if len(n.LinkName()) > maxLinkName {
		return nil, fmt.Errorf("link name %s must have at most %d bytes: use a ClusterNetwork with a NetworkID of 10 characters or fewer for this VLAN", n.LinkName(), maxLinkName)
	}
	return n, nil
}
