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

// mergeResults returns the CNI result (CNI 1.1, section 5, "ADD Success") of an attached record. It
// keeps the order of interfaces, because runtimes use the addresses of the first one. DNS is that of
// the first interface. The result depends on the record alone, so that a repeated ADD gets the same
// one.
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

// appendResult appends the interfaces, addresses and routes of a part. It adjusts the indexes of
// interfaces in the addresses.
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

// result returns the result of one interface.
func (ifc *Interface) result(netns string) (*types100.Result, error) {
	if len(ifc.Result) > 0 {
		return ifc.delegateResult(netns)
	}
	r := &types100.Result{
		Interfaces: []*types100.Interface{{Name: ifc.Name, Mac: ifc.MAC, Mtu: ifc.MTU, Sandbox: netns, PciID: ifc.DeviceID}},
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

// routes returns the routes of a subnet if the interface has an address of its family. It omits policy
// routes: before CNI 1.1 a result cannot name a table, so that they would seem to be in the main
// table.
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

// delegateResult returns the delegate's result. An address without an interface index gets that of the
// Pod's interface.
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
		// Results before CNI 0.3.0 have no interfaces, and neither have those of some plugins.
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

// ipNet converts p and keeps the host bits of the address.
func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
