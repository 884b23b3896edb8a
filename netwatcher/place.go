// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"fmt"
	"strings"

	"github.com/patchbay-cni/patchbay/network"
)

// Bytes that VXLAN takes of the NIC's MTU: outer IP header, UDP, VXLAN and the
// inner Ethernet header (RFC 7348, 5).
const (
	overhead4 = 20 + 8 + 8 + 14
	overhead6 = 40 + 8 + 8 + 14
)

// usable finds the NIC that links or Pods are to be put on.
func usable(state *State, device string) (*NIC, error) {
	nic, ok := state.nic(device)
	if !ok {
		return nil, fmt.Errorf("%s: %w%s", device, ErrNoNIC, cards(state))
	}
	if nic.Master != "" && nic.MasterKind != "vrf" { // a VRF takes no frame from VLANs and slaves
		return nil, fmt.Errorf("%s: %w, the %s %s: name that one as host_device, or take the NIC out of it",
			device, ErrBridgePort, nic.MasterKind, nic.Master)
	}
	return nic, nil
}

// cards lists what could have been meant.
func cards(state *State) string {
	var names []string
	for i := range state.NICs {
		if state.NICs[i].listed() {
			names = append(names, state.NICs[i].Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (it has " + strings.Join(names, ", ") + ")"
}

// place completes the spec on the NIC. The link's MTU is what the NIC leaves, for
// every network that rides on it; theirs is their Pods' matter.
func (s *Spec) place(nic *NIC, peers VTEPs) error {
	s.MTU = nic.MTU
	if s.Identity.VXLAN == 0 {
		return nil
	}
	if len(nic.Addresses) == 0 {
		return fmt.Errorf("%s: %w: give it one", nic.Name, ErrNoAddress)
	}
	s.Local = nic.Addresses[0].Addr()
	s.MTU -= overhead6
	if s.Local.Is4() {
		s.MTU += overhead6 - overhead4
	}
	s.Peers = peers.of(nic.Name, s.Local)
	return nil
}

// fits compares the MTU that a network asks for with its link's.
func fits(n *network.Network, mtu int, nic *NIC) error {
	if n.MTU > mtu {
		return fmt.Errorf("%w: mtu %d, but %d is what %s with %d leaves: raise the NIC's or lower the network's",
			ErrMTU, n.MTU, mtu, nic.Name, nic.MTU)
	}
	return nil
}
