// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// NetworkKinds are the kinds of network objects.
func NetworkKinds() []string {
	return []string{v1.KindClusterNetwork, v1.KindTenantNetwork, v1.KindDanmNet}
}

// NewNetwork returns an empty network object of a kind.
func NewNetwork(kind string) (client.Object, error) {
	switch kind {
	case v1.KindClusterNetwork:
		return &v1.ClusterNetwork{}, nil
	case v1.KindTenantNetwork:
		return &v1.TenantNetwork{}, nil
	case v1.KindDanmNet:
		return &v1.DanmNet{}, nil
	}
	return nil, fmt.Errorf("%q is not a kind of network", kind)
}

// NewNetworkList returns an empty list of a kind of network.
func NewNetworkList(kind string) (client.ObjectList, error) {
	switch kind {
	case v1.KindClusterNetwork:
		return &v1.ClusterNetworkList{}, nil
	case v1.KindTenantNetwork:
		return &v1.TenantNetworkList{}, nil
	case v1.KindDanmNet:
		return &v1.DanmNetList{}, nil
	}
	return nil, fmt.Errorf("%q is not a kind of network", kind)
}

// NetworkKindOf names the kind of a network object; false for an object of another kind.
func NetworkKindOf(obj client.Object) (string, bool) {
	switch obj.(type) {
	case *v1.ClusterNetwork:
		return v1.KindClusterNetwork, true
	case *v1.TenantNetwork:
		return v1.KindTenantNetwork, true
	case *v1.DanmNet:
		return v1.KindDanmNet, true
	}
	return "", false
}

// NetworkStatusOf returns the status inside a network object, or nil for another kind.
func NetworkStatusOf(obj client.Object) *v1.NetworkStatus {
	switch o := obj.(type) {
	case *v1.ClusterNetwork:
		return &o.Status
	case *v1.TenantNetwork:
		return &o.Status
	case *v1.DanmNet:
		return &o.Status
	}
	return nil
}

// ObjectKey is the object key of a network.
func ObjectKey(ref network.Ref) client.ObjectKey {
	return client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
}

// NetworkRefOf names an object of a kind.
func NetworkRefOf(kind string, obj client.Object) network.Ref {
	return network.Ref{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// PartialMetadata returns an empty metadata-only object of a kind of ours. Whoever
// watches these is not sent a network's status with every claim.
func PartialMetadata(kind string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.SchemeGroupVersion().String(), Kind: kind},
	}
}

// ParsedNetwork is what a network object meant at one version: a validated network, or
// what is wrong with it.
type ParsedNetwork struct {
	// Version is what it was read at.
	Version SpecVersion
	// Network is nil when Err is not.
	Network *network.Network
	// Err names the field that is wrong; it wraps network.ErrInvalid.
	Err error
}

// ParseNetwork says what a network object means. Whoever attaches Pods asks the
// TenantConfigs besides whether a TenantNetwork was assigned what it says.
func ParseNetwork(obj client.Object) ParsedNetwork {
	net, err := network.FromObject(obj)
	return ParsedNetwork{Version: SpecVersionOf(obj), Network: net, Err: err}
}

// SpecVersion tells two readings of an object's spec apart. Writes of status leave
// all of it alone. It is comparable.
type SpecVersion struct {
	// UID tells the object from a former one of the same name.
	UID types.UID
	// Generation of the spec.
	Generation int64
	// Deleting says that it has a deletion timestamp.
	Deleting bool
}

// SpecVersionOf reads an object's metadata, which is enough.
func SpecVersionOf(obj client.Object) SpecVersion {
	return SpecVersion{UID: obj.GetUID(), Generation: obj.GetGeneration(), Deleting: obj.GetDeletionTimestamp() != nil}
}
