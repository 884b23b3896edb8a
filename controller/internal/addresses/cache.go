// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"net/netip"
	"sync"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
)

// byNetwork is the index of cached DanmEps by the network that they name.
const byNetwork = "network"

// CacheByObject says how the objects that this package caches are slimmed; it is for
// cache.Options. The rest of the program may add to it, not take from it.
func CacheByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&v1.DanmEp{}:      {Transform: slimEndpoint},
		&v1.NodeNetwork{}: {Transform: kube.StripNodeNetwork},
		&corev1.Node{}:    {Transform: slimNode},
	}
}

// slimEndpoint keeps what names a DanmEp, its network, interface, addresses, node and
// Pod, how old it is, and whether it is being deleted.
func slimEndpoint(obj any) (any, error) {
	ep, ok := obj.(*v1.DanmEp)
	if !ok {
		return obj, nil
	}
	s := ep.Spec
	if s.EndpointID == ep.Name {
		s.EndpointID = ep.Name // one copy of the text
	}
	return &v1.DanmEp{
		ObjectMeta: agedMetadata(&ep.ObjectMeta),
		Spec: v1.DanmEpSpec{
			NetworkName: intern(s.NetworkName), NetworkUID: intern(s.NetworkUID), APIType: intern(s.APIType),
			Host: intern(s.Host), HostUID: intern(s.HostUID), Pod: s.Pod, PodUID: s.PodUID, EndpointID: s.EndpointID,
			Interface: v1.DanmEpInterface{Name: intern(s.Interface.Name), Address: s.Interface.Address, AddressIPv6: s.Interface.AddressIPv6},
		},
	}, nil
}

func agedMetadata(m *metav1.ObjectMeta) metav1.ObjectMeta {
	slim := identityMetadata(m)
	slim.CreationTimestamp, slim.DeletionTimestamp = m.CreationTimestamp, m.DeletionTimestamp
	return slim
}

// intern returns one copy of a text that many DanmEps have.
func intern(text string) string { return unique.Make(text).Value() }

// slimNode keeps what names a Node, its operating system and its zone.
func slimNode(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	slim := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: identityMetadata(&m.ObjectMeta)}
	for _, key := range []string{corev1.LabelOSStable, corev1.LabelTopologyZone} {
		if value, ok := m.Labels[key]; ok {
			metav1.SetMetaDataLabel(&slim.ObjectMeta, key, value)
		}
	}
	return slim, nil
}

func identityMetadata(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

// nicAddressTTL is how long the nodes' addresses serve before they are read anew from the
// cache: parsing those of a thousand nodes for each network would take long.
const nicAddressTTL = 10 * time.Second

// nicAddressCache are the addresses of all nodes' NICs.
type nicAddressCache struct {
	mu  sync.Mutex
	at  time.Time
	all []netip.Addr
}

// get returns them, read from the cache; none while it is not filled.
func (n *nicAddressCache) get(ctx context.Context, cached client.Reader, now time.Time) []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now.Sub(n.at) < nicAddressTTL {
		return n.all
	}
	list := &v1.NodeNetworkList{}
	if err := cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	n.at, n.all = now, kube.NodeNICAddresses(list.Items)
	return n.all
}
