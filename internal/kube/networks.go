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

// NetworkKinds returns the kinds of network objects.
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
	return nil, fmt.Errorf("kind %q must be one of %v", kind, NetworkKinds())
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
	return nil, fmt.Errorf("kind %q must be one of %v", kind, NetworkKinds())
}

// NetworkKindOf returns the kind of a network object; false for another object.
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

// NetworkStatusOf returns a pointer to the status of a network object, or nil for another kind.
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

// ObjectKey returns the object key of a network.
func ObjectKey(ref network.Ref) client.ObjectKey {
	return client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
}

// NetworkRefOf returns the reference to an object of a kind.
func NetworkRefOf(kind string, obj client.Object) network.Ref {
	return network.Ref{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// PartialMetadata returns an empty metadata-only object of a kind of ours. A watch of these does
// not receive the status of a network with every claim.
func PartialMetadata(kind string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.SchemeGroupVersion().String(), Kind: kind},
	}
}

// ParsedNetwork is a network object at one version: a valid network, or the error of an invalid
// one.
type ParsedNetwork struct {
	// Version is the version that was parsed.
	Version SpecVersion
	// Network is nil when Err is not.
	Network *network.Network
	// Err names the invalid field; it wraps network.ErrInvalid.
	Err error
}

// ParseNetwork parses a network object. Whether a TenantNetwork's assignment is reserved is in the
// status of TenantConfigs, which this function does not read.
func ParseNetwork(obj client.Object) ParsedNetwork {
	net, err := network.FromObject(obj)
	return ParsedNetwork{Version: SpecVersionOf(obj), Network: net, Err: err}
}

// SpecVersion identifies a version of an object's spec. Writes of the status do not change it. It
// is comparable.
type SpecVersion struct {
	// UID of the object.
	UID types.UID
	// Generation of the spec.
	Generation int64
	// Deleting is true when the object has a deletion timestamp.
	Deleting bool
}

// SpecVersionOf returns the version of an object or of its metadata.
func SpecVersionOf(obj client.Object) SpecVersion {
	return SpecVersion{UID: obj.GetUID(), Generation: obj.GetGeneration(), Deleting: obj.GetDeletionTimestamp() != nil}
}
