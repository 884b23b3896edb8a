// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// State is the state of a sandbox. It is journaled before each step.
type State string

const (
	// Attaching is written before the first side effect.
	Attaching State = "attaching"
	// Attached is written before ADD answers. The Publisher then creates the DanmEps.
	Attached State = "attached"
	// Detaching is written when a DEL could not detach all interfaces. Some may be gone, so that a
	// repeated ADD must not return them. Its addresses and DanmEps are those of an Attached record.
	Detaching State = "detaching"
	// Released is written when the interfaces are gone. The Publisher then releases the addresses
	// and DanmEps, and deletes the record.
	Released State = "released"
)

// Record is one sandbox in the journal. DEL needs nothing else, so that it works without the API
// server, the network objects and the network namespace. The record is stored as JSON.
type Record struct {
	// ContainerID is CNI_CONTAINERID. Together with IfName it is the journal's key.
	ContainerID string `json:"containerID"`
	// IfName is CNI_IFNAME.
	IfName string `json:"ifName"`
	// NetName is the name of the CNI network configuration of the request. A GC of another
	// configuration does not concern the sandbox.
	NetName string `json:"netName"`
	// Netns is the path of the Pod's network namespace.
	Netns string `json:"netns"`
	// Path is CNI_PATH, which delegates need on DEL.
	Path string `json:"path,omitempty"`
	// BootID is the kernel's boot ID. After a reboot the network namespace is gone.
	BootID string `json:"bootID"`
	// PodNamespace, PodName, PodUID name the Pod.
	PodNamespace string `json:"podNamespace"`
	PodName      string `json:"podName"`
	PodUID       string `json:"podUID"`
	// Labels are the Pod's labels at ADD, without those of Patchbay's domains.
	Labels map[string]string `json:"labels,omitempty"`
	// State is the state of the sandbox.
	State State `json:"state"`
	// Interfaces in the annotation's order.
	Interfaces []Interface `json:"interfaces"`
}

// RecordKey identifies a record in the journal.
type RecordKey struct {
	// ContainerID is CNI_CONTAINERID, IfName is CNI_IFNAME.
	ContainerID, IfName string
}

// String returns the key in the form of log messages.
func (k RecordKey) String() string { return k.ContainerID + "/" + k.IfName }

// Key returns the record's key in the journal.
func (r *Record) Key() RecordKey { return RecordKey{ContainerID: r.ContainerID, IfName: r.IfName} }

// OnNodeConfiguration reports whether the sandbox has a CNI configuration of the node instead of networks.
// Then the API server and the allocator know nothing of it.
func (r *Record) OnNodeConfiguration() bool {
	return slices.ContainsFunc(r.Interfaces, func(ifc Interface) bool { return ifc.Network.IsNodeConfiguration() })
}

// Clone returns a copy whose interfaces can be changed. The copies share what the interfaces point
// to, which never changes.
func (r *Record) Clone() *Record {
	c := *r
	c.Interfaces = slices.Clone(r.Interfaces)
	return &c
}

// Interface is one interface of a Pod, as planned, and after Attach as attached.
type Interface struct {
	// Name in the Pod, at most 15 bytes.
	Name string `json:"name"`
	// Network is the model as it was at ADD.
	Network network.Network `json:"network"`
	// V4 and V6 are the addresses with the subnet's prefix length. They are the zero value when the
	// interface has no address of that family.
	V4 netip.Prefix `json:"v4,omitzero"`
	V6 netip.Prefix `json:"v6,omitzero"`
	// StaticV4 and StaticV6 are true for a static address, which is freed at once and never enters
	// the warm pool. Records of older daemons have neither, so that their static addresses are
	// freed like dynamic ones.
	StaticV4 bool `json:"staticV4,omitempty"`
	StaticV6 bool `json:"staticV6,omitempty"`
	// Proutes has the policy routes of both families: routes in table Network.Table, for traffic from
	// the interface's own address.
	Proutes []network.Route `json:"proutes,omitempty"`
	// Parent is the host link below an IPVLAN or MACVLAN slave.
	Parent string `json:"parent,omitempty"`
	// DeviceID is the PCI address that a device plugin has allocated.
	DeviceID string `json:"deviceID,omitempty"`
	// Representor is the host's interface that represents the device in the switch of its network card,
	// if it has one. Prepare sets it.
	Representor string `json:"representor,omitempty"`
	// DeviceState is the device's state before Attach, in the format of the backend. Detach returns to
	// it.
	DeviceState json.RawMessage `json:"deviceState,omitempty"`
	// MAC and MTU are those of the attached interface.
	MAC string `json:"mac,omitempty"`
	MTU int    `json:"mtu,omitempty"`
	// DelegateConfig is the configuration of the delegate, of one plugin or a list. ADD and DEL use
	// the same one.
	DelegateConfig json.RawMessage `json:"delegateConfig,omitempty"`
	// RuntimeConfig has what the runtime passes for the capabilities of the delegate's plugins, for the
	// sandbox's first interface only.
	RuntimeConfig json.RawMessage `json:"runtimeConfig,omitempty"`
	// Result is the delegate's CNI result, converted to 1.0.0.
	Result json.RawMessage `json:"result,omitempty"`
	// EndpointName and EndpointUID are those of the DanmEp. The UID is empty until the DanmEp was
	// created. An interface on a CNI configuration of the node has no DanmEp, and no EndpointName.
	EndpointName string `json:"endpointName"`
	EndpointUID  string `json:"endpointUID,omitempty"`
}

// hasStaticAddress reports whether an address of the interface is static.
func (ifc *Interface) hasStaticAddress() bool { return ifc.StaticV4 || ifc.StaticV6 }

// checkGateways returns an error if an address of the interface is a gateway of its own policy
// routes, which the kernel rejects without a reason. A retry gets another dynamic address.
func (ifc *Interface) checkGateways() error {
	for _, r := range ifc.Proutes {
		if r.Gateway == ifc.V4.Addr() || r.Gateway == ifc.V6.Addr() {
			return fmt.Errorf("the policy route to %s has gateway %s, which is a dynamic address of network %s and was just claimed for this Pod: %w, and keep gateways out of the network's pool",
				r.Dst, r.Gateway, ifc.Network.Ref, ErrTryAgain)
		}
	}
	return nil
}

// needsHostLink reports whether the interface needs a host link: it is an IPVLAN or MACVLAN slave,
// or its delegate uses the VLAN or VXLAN link of the network as its master.
func (ifc *Interface) needsHostLink() bool {
	id, ok := ifc.Network.Link()
	return !ifc.Network.Delegates() && !ifc.Network.UsesDevicePool() || ok && !id.IsNIC()
}

// addressSlot is one family of an interface.
type addressSlot struct {
	address *netip.Prefix
	static  bool
}

// addressSlots returns the families in which the interface has an address.
func (ifc *Interface) addressSlots() []addressSlot {
	both := []addressSlot{{&ifc.V4, ifc.StaticV4}, {&ifc.V6, ifc.StaticV6}}
	return slices.DeleteFunc(both, func(s addressSlot) bool { return !s.address.IsValid() })
}
