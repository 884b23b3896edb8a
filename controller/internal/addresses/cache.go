// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"strings"
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

// CacheByObject returns how the objects that this package caches are stripped, for cache.Options.
// Other packages of the program may keep more of an object, but not less.
func CacheByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&v1.DanmEp{}:      {Transform: slimEndpoint},
		&v1.NodeNetwork{}: {Transform: kube.StripNodeNetwork},
		&corev1.Node{}:    {Transform: slimNode},
	}
}

// slimEndpoint keeps of a DanmEp its names, network, interface, addresses, node, Pod and times.
func slimEndpoint(obj any) (any, error) {
	ep, ok := obj.(*v1.DanmEp)
	if !ok {
		return obj, nil
	}
	s := ep.Spec
	if s.EndpointID == ep.Name {
		s.EndpointID = ep.Name // shares the memory
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

// intern returns a shared copy of a text that many DanmEps have.
func intern(text string) string { return unique.Make(text).Value() }

// slimNode keeps of a Node its name, its operating system, its zone and the labels that name its NICs.
func slimNode(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	slim := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: identityMetadata(&m.ObjectMeta)}
	for key, value := range m.Labels {
		if key == corev1.LabelOSStable || key == corev1.LabelTopologyZone || strings.HasPrefix(key, v1.NICLabelPrefix) {
			metav1.SetMetaDataLabel(&slim.ObjectMeta, key, value)
		}
	}
	return slim, nil
}

func identityMetadata(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}
