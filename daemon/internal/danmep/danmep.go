// SPDX-License-Identifier: Apache-2.0

package danmep

import (
	"encoding/json"
	"net/netip"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/nodestate"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// newDanmEp returns the DanmEp of one interface of a journaled sandbox. The DanmEp has no
// ownerReference to the Pod, because garbage collection would delete it before the interface
// is gone.
func newDanmEp(rec *attach.Record, ifc *attach.Interface, node nodestate.Identity) *v1.DanmEp {
	v4, v6 := interfaceAddresses(ifc)
	return &v1.DanmEp{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  rec.PodNamespace,
			Name:       ifc.EndpointName,
			Labels:     rec.Labels,
			Finalizers: []string{v1.NodeFinalizer},
		},
		Spec: v1.DanmEpSpec{
			NetworkName: ifc.Network.Ref.Name,
			NetworkUID:  ifc.Network.UID,
			NetworkType: ifc.Network.Type,
			APIType:     ifc.Network.Ref.Kind,
			EndpointID:  ifc.EndpointName,
			Interface: v1.DanmEpInterface{
				Name:        ifc.Name,
				Address:     prefixString(v4),
				AddressIPv6: prefixString(v6),
				MacAddress:  ifc.MAC,
				MTU:         int32(ifc.MTU),
				DeviceID:    ifc.DeviceID,
				Representor: ifc.Representor,
				Proutes:     policyRoutes(ifc.Proutes, netip.Addr.Is4),
				Proutes6:    policyRoutes(ifc.Proutes, netip.Addr.Is6),
			},
			Host: node.Name, HostUID: node.UID,
			Pod: rec.PodName, PodUID: rec.PodUID,
			CID: rec.ContainerID, Netns: rec.Netns,
		},
	}
}

// interfaceAddresses returns the address of each family: the address that Patchbay allocated,
// or else the first one in the delegate's result.
func interfaceAddresses(ifc *attach.Interface) (v4, v6 netip.Prefix) {
	v4, v6 = ifc.V4, ifc.V6
	if len(ifc.Result) == 0 {
		return v4, v6
	}
	var result types100.Result
	if err := json.Unmarshal(ifc.Result, &result); err != nil {
		return v4, v6 // ADD has rejected such a result
	}
	for _, ip := range result.IPs {
		p, err := netip.ParsePrefix(ip.Address.String())
		switch {
		case err != nil:
		case p.Addr().Is4() && !v4.IsValid():
			v4 = p
		case p.Addr().Is6() && !v6.IsValid():
			v6 = p
		}
	}
	return v4, v6
}

// prefixString returns the prefix as text, and an empty text for an invalid prefix.
func prefixString(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

// policyRoutes returns the routes of one family as gateway by destination, in the form that DANM
// writes. It returns nil without a route.
func policyRoutes(all []network.Route, family func(netip.Addr) bool) map[string]string {
	var m map[string]string
	for _, r := range all {
		if family(r.Dst.Addr()) {
			if m == nil {
				m = map[string]string{}
			}
			m[r.Dst.String()] = r.Gateway.String()
		}
	}
	return m
}
