// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// Kinds are the kinds of network objects.
func Kinds() []string {
	return []string{v1.KindClusterNetwork, v1.KindTenantNetwork, v1.KindDanmNet}
}

// New returns an empty network object of a kind.
func New(kind string) (client.Object, error) {
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

// NewList returns an empty list of a kind of network.
func NewList(kind string) (client.ObjectList, error) {
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

// KindOf names the kind of a network object; false for an object of another kind.
func KindOf(obj client.Object) (string, bool) {
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

// StatusOf returns the status inside a network object, or nil for another kind.
func StatusOf(obj client.Object) *v1.NetworkStatus {
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

// Key is the object key of a network.
func Key(ref network.Ref) client.ObjectKey {
	return client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
}

// RefOf names an object of a kind.
func RefOf(kind string, obj client.Object) network.Ref {
	return network.Ref{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Metadata returns an empty metadata-only object of a kind of ours. Whoever
// watches these is not sent a network's status with every claim.
func Metadata(kind string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.SchemeGroupVersion().String(), Kind: kind},
	}
}

// Model is what a network object meant at one version: a validated network, or
// what is wrong with it.
type Model struct {
	// Version is what it was read at.
	Version Version
	// Network is nil when Err is not.
	Network *network.Network
	// Err names the field that is wrong; it wraps network.ErrInvalid.
	Err error
}

// ModelOf says what a network object means. Whoever attaches Pods asks the
// TenantConfigs besides whether a TenantNetwork was assigned what it says.
func ModelOf(obj client.Object) Model {
	net, err := network.From(obj)
	return Model{Version: VersionOf(obj), Network: net, Err: err}
}

// Version tells two readings of an object's spec apart. Writes of status leave
// all of it alone. It is comparable.
type Version struct {
	// UID tells the object from a former one of the same name.
	UID types.UID
	// Generation of the spec.
	Generation int64
	// Deleting says that it has a deletion timestamp.
	Deleting bool
}

// VersionOf reads an object's metadata, which is enough.
func VersionOf(obj client.Object) Version {
	return Version{UID: obj.GetUID(), Generation: obj.GetGeneration(), Deleting: obj.GetDeletionTimestamp() != nil}
}
