// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// State is how far a sandbox has come. It is journalled before each step.
type State string

const (
	// Attaching is written before the first side effect.
	Attaching State = "attaching"
	// Attached is written before ADD answers; DanmEps follow.
	Attached State = "attached"
	// Detaching is written when a DEL could not take all interfaces away: some
	// may be gone, so that a repeated ADD must not answer with them. Its
	// addresses and DanmEps are those of an Attached record.
	Detaching State = "detaching"
	// Released is written when the interfaces are gone; the addresses and the
	// DanmEps are given back in the background, then the record goes.
	Released State = "released"
)

// Record is one sandbox in the journal: everything that DEL needs when the API
// server, the network objects or the namespace are gone. It is stored as JSON.
type Record struct {
	// ContainerID is the sandbox (CNI_CONTAINERID); the journal's key together
	// with IfName.
	ContainerID string `json:"containerID"`
	// IfName is CNI_IFNAME.
	IfName string `json:"ifName"`
	// NetName is the name of the CNI network that the request came from: GC
	// of another one frees nothing of ours.
	NetName string `json:"netName"`
	// Netns is the path of the Pod's network namespace.
	Netns string `json:"netns"`
	// Path is CNI_PATH, for delegates on DEL.
	Path string `json:"path,omitempty"`
	// BootID is the kernel's boot_id: after a reboot no namespace is left.
	BootID string `json:"bootID"`
	// PodNamespace, PodName, PodUID name the Pod.
	PodNamespace string `json:"podNamespace"`
	PodName      string `json:"podName"`
	PodUID       string `json:"podUID"`
	// Labels are the Pod's at ADD, without keys of our own domains.
	Labels map[string]string `json:"labels,omitempty"`
	// State is how far it has come.
	State State `json:"state"`
	// Interfaces in the annotation's order.
	Interfaces []Interface `json:"interfaces"`
}

// Clone returns a copy whose interfaces can be changed; what these point to is
// shared and never changed.
func (r *Record) Clone() *Record {
	c := *r
	c.Interfaces = slices.Clone(r.Interfaces)
	return &c
}

// Interface is one interface of a Pod: the plan, and after Attach its outcome.
type Interface struct {
	// Name in the Pod, at most 15 bytes.
	Name string `json:"name"`
	// Network is the model as it was at ADD.
	Network network.Network `json:"network"`
	// V4 and V6 are the addresses with the subnet's prefix length; invalid
	// (zero) when the interface has none of that family.
	V4 netip.Prefix `json:"v4,omitzero"`
	V6 netip.Prefix `json:"v6,omitzero"`
	// StaticV4 and StaticV6 say that the address was asked for by name: it is
	// freed at once, and never kept for the next Pod. Records of older daemons
	// have neither, so that a static address of theirs is freed as a dynamic one.
	StaticV4 bool `json:"staticV4,omitempty"`
	StaticV6 bool `json:"staticV6,omitempty"`
	// Proutes are policy routes of both families: in table Network.Table,
	// for traffic from the interface's own address.
	Proutes []network.Route `json:"proutes,omitempty"`
	// Parent is the link on the host below a slave of ours.
	Parent string `json:"parent,omitempty"`
	// DeviceID is what a device plugin gave, a PCI address.
	DeviceID string `json:"deviceID,omitempty"`
	// MAC and MTU are the kernel's, after Attach.
	MAC string `json:"mac,omitempty"`
	MTU int    `json:"mtu,omitempty"`
	// DelegateConfig is the configuration (a plugin's or a list) that the
	// delegate ran with; DEL runs with the same.
	DelegateConfig json.RawMessage `json:"delegateConfig,omitempty"`
	// Result is the delegate's CNI result, converted to 1.0.0.
	Result json.RawMessage `json:"result,omitempty"`
	// EndpointName and EndpointUID are the DanmEp's; the UID is empty until
	// the API server has it.
	EndpointName string `json:"endpointName"`
	EndpointUID  string `json:"endpointUID,omitempty"`
}

func (ifc *Interface) hasStaticAddress() bool { return ifc.StaticV4 || ifc.StaticV6 }

// checkGateways reports a dynamic address that the Pod's own policy routes lead to: the
// kernel would refuse them, and give no reason. The next try gets another address.
func (ifc *Interface) checkGateways() error {
	for _, r := range ifc.Proutes {
		if r.Gateway == ifc.V4.Addr() || r.Gateway == ifc.V6.Addr() {
			return fmt.Errorf("the policy route to %s has gateway %s, which is a dynamic address of network %s and was just claimed for this Pod: %w, and keep gateways out of the network's pool",
				r.Dst, r.Gateway, ifc.Network.Ref, ErrTryAgain)
		}
	}
	return nil
}

// needsHostLink reports whether the interface is made on a host link: when it is our own, or
// when the network asks for a VLAN or VXLAN that another plugin is to use as its master.
func (ifc *Interface) needsHostLink() bool {
	id, ok := ifc.Network.Link()
	return !ifc.Network.Delegates() || ok && !id.IsNIC()
}

// addressSlot is one family of an interface.
type addressSlot struct {
	address *netip.Prefix
	static  bool
}

// addressSlots are the families in which the interface has an address.
func (ifc *Interface) addressSlots() []addressSlot {
	both := []addressSlot{{&ifc.V4, ifc.StaticV4}, {&ifc.V6, ifc.StaticV6}}
	return slices.DeleteFunc(both, func(x addressSlot) bool { return !x.address.IsValid() })
}
