// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// networkKinds are the kinds of network objects.
func networkKinds() []string {
	return []string{v1.KindClusterNetwork, v1.KindTenantNetwork, v1.KindDanmNet}
}

// newObject returns an empty network object of a kind.
func newObject(kind string) (client.Object, error) {
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

// newList returns an empty list of a kind of network.
func newList(kind string) (client.ObjectList, error) {
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

// kindOf names the kind of a network object; false for another kind of object.
func kindOf(obj client.Object) (string, bool) {
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

// statusOf returns the status inside a network object, or nil for another kind.
func statusOf(obj client.Object) *v1.NetworkStatus {
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

// key is the object key of a network.
func key(ref network.Ref) client.ObjectKey {
	return client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
}

// refOf names an object of a kind.
func refOf(kind string, obj client.Object) network.Ref {
	return network.Ref{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}
