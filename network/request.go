// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// InterfaceRequest is what a Pod's annotation asks of one interface.
type InterfaceRequest struct {
	// Kind of the network: ClusterNetwork, TenantNetwork or DanmNet.
	Kind string
	// Network is the object's name; its namespace is the Pod's.
	Network string
	// V4 and V6 are the addresses asked for.
	V4, V6 AddressRequest
	// Proutes and Proutes6 are policy routes, ordered by destination.
	Proutes, Proutes6 []Route
}

// AddressRequest asks for an address of one family; the zero value asks for none.
type AddressRequest struct {
	// Dynamic asks for any free address of the pool.
	Dynamic bool
	// Static asks for this address; not with Dynamic.
	Static netip.Addr
}

// None reports whether no address is asked for.
func (a AddressRequest) None() bool { return !a.Dynamic && !a.Static.IsValid() }

// Ref names the network for a Pod in namespace: no reference reaches into
// another namespace.
func (r InterfaceRequest) Ref(namespace string) Ref {
	if r.Kind == v1.KindClusterNetwork {
		namespace = ""
	}
	return Ref{Kind: r.Kind, Namespace: namespace, Name: r.Network}
}

// DefaultRefs are the networks that a Pod without an annotation may get, in the
// order of looking them up: the first that exists is it.
func DefaultRefs(namespace string) []Ref {
	return []Ref{
		{Kind: v1.KindDanmNet, Namespace: namespace, Name: v1.DefaultNetworkName},
		{Kind: v1.KindTenantNetwork, Namespace: namespace, Name: v1.DefaultNetworkName},
		{Kind: v1.KindClusterNetwork, Name: v1.DefaultNetworkName},
	}
}

// DefaultRequest is what a Pod without an annotation asks of the default network:
// an address of each family that the network has.
func DefaultRequest(n *Network) InterfaceRequest {
	return InterfaceRequest{
		Kind: n.Ref.Kind, Network: n.Ref.Name,
		V4: AddressRequest{Dynamic: n.V4 != nil},
		V6: AddressRequest{Dynamic: n.V6 != nil},
	}
}
