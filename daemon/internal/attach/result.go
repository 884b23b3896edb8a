// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// mergeResults is the CNI result (CNI 1.1, section 5, "ADD Success") of an attached
// record. Runtimes take the Pod's addresses from the first interface, so the
// record's order is kept. DNS is the first interface's. It is a function of the
// record alone: a repeated ADD gets the same result.
func mergeResults(rec *Record) (*types100.Result, error) {
	all := &types100.Result{CNIVersion: types100.ImplementedSpecVersion}
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		part, err := ifc.result(rec.Netns)
		if err != nil {
			return nil, fmt.Errorf("merge result of %s: %w", ifc.Name, err)
		}
		if i == 0 {
			all.DNS = part.DNS
		}
		appendResult(all, part)
	}
	return all, nil
}

// appendResult adds a part's interfaces, addresses and routes; the addresses' indexes
// move with the interfaces.
func appendResult(all, part *types100.Result) {
	offset := len(all.Interfaces)
	all.Interfaces = append(all.Interfaces, part.Interfaces...)
	for _, ip := range part.IPs {
		if ip.Interface != nil {
			ip.Interface = new(offset + *ip.Interface)
		}
		all.IPs = append(all.IPs, ip)
	}
	all.Routes = append(all.Routes, part.Routes...)
}

// result is what one interface adds to the Pod's.
func (ifc *Interface) result(netns string) (*types100.Result, error) {
	if len(ifc.Result) > 0 {
		return ifc.delegateResult(netns)
	}
	r := &types100.Result{
		Interfaces: []*types100.Interface{{Name: ifc.Name, Mac: ifc.MAC, Mtu: ifc.MTU, Sandbox: netns}},
	}
	for _, p := range []netip.Prefix{ifc.V4, ifc.V6} {
		if p.IsValid() {
			r.IPs = append(r.IPs, &types100.IPConfig{Interface: new(0), Address: ipNet(p)})
		}
	}
	for _, subnet := range []*network.Subnet{ifc.Network.V4, ifc.Network.V6} {
		r.Routes = append(r.Routes, ifc.routes(subnet)...)
	}
	return r, nil
}

// routes are the subnet's, when the interface has an address of its family.
// Policy routes are left out: before CNI 1.1 a result cannot name a table, and
// a reader would take them for routes of the main one.
func (ifc *Interface) routes(subnet *network.Subnet) []*types.Route {
	if subnet == nil || subnet.CIDR.Addr().Is4() && !ifc.V4.IsValid() || subnet.CIDR.Addr().Is6() && !ifc.V6.IsValid() {
		return nil
	}
	var routes []*types.Route
	for _, r := range subnet.Routes {
		routes = append(routes, &types.Route{Dst: ipNet(r.Dst), GW: r.Gateway.AsSlice()})
	}
	return routes
}

// delegateResult is the other plugin's own result. It may have interfaces on the
// host, and addresses without an index, which are then the Pod's interface's.
func (ifc *Interface) delegateResult(netns string) (*types100.Result, error) {
	r := &types100.Result{}
	if err := json.Unmarshal(ifc.Result, r); err != nil {
		return nil, fmt.Errorf("decode the delegate's result: %w", err)
	}
	own := -1
	for i, link := range r.Interfaces {
		if link.Name == ifc.Name && link.Sandbox != "" {
			own = i
		}
	}
	if own < 0 {
		// Results before CNI 0.3.0 have no interfaces, some plugins none at all.
		own = len(r.Interfaces)
		r.Interfaces = append(r.Interfaces, &types100.Interface{Name: ifc.Name, Mac: ifc.MAC, Mtu: ifc.MTU, Sandbox: netns})
	}
	for _, ip := range r.IPs {
		if ip.Interface == nil {
			ip.Interface = new(own)
		}
	}
	return r, nil
}

// ipNet is p with the address's host bits kept.
func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
