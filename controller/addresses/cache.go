// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"fmt"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// byNetwork is the index of cached DanmEps by the network that they name.
const byNetwork = "network"

// Cached says how the objects that this package caches are slimmed; it is for
// cache.Options. The rest of the program may add to it, not take from it.
func Cached() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&v1.DanmEp{}:      {Transform: slimEndpoint},
		&v1.NodeNetwork{}: {Transform: objects.SlimNodeNetwork},
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
		ObjectMeta: aged(&ep.ObjectMeta),
		Spec: v1.DanmEpSpec{
			NetworkName: intern(s.NetworkName), NetworkUID: intern(s.NetworkUID), APIType: intern(s.APIType),
			Host: intern(s.Host), HostUID: intern(s.HostUID), Pod: s.Pod, PodUID: s.PodUID, EndpointID: s.EndpointID,
			Interface: v1.DanmEpInterface{Name: intern(s.Interface.Name), Address: s.Interface.Address, AddressIPv6: s.Interface.AddressIPv6},
		},
	}, nil
}

// intern returns one copy of a text that many DanmEps have.
func intern(text string) string { return unique.Make(text).Value() }

// slimNode keeps what names a Node, its operating system and its zone.
func slimNode(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	slim := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: identity(&m.ObjectMeta)}
	for _, key := range []string{corev1.LabelOSStable, corev1.LabelTopologyZone} {
		if value, ok := m.Labels[key]; ok {
			metav1.SetMetaDataLabel(&slim.ObjectMeta, key, value)
		}
	}
	return slim, nil
}

func identity(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

func aged(m *metav1.ObjectMeta) metav1.ObjectMeta {
	slim := identity(m)
	slim.CreationTimestamp, slim.DeletionTimestamp = m.CreationTimestamp, m.DeletionTimestamp
	return slim
}

// nodeMeta is an empty Node as metadata.
func nodeMeta() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
}

// podMeta is an empty Pod as metadata.
func podMeta() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
}

// nodes returns the cached Nodes.
func (c *Controller) nodes(ctx context.Context) (nodes, error) { return listNodes(ctx, c.cached) }

// listNodes reads all Nodes as metadata.
func listNodes(ctx context.Context, from client.Reader) (nodes, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := from.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	all := nodes{}
	for i := range list.Items {
		n := &list.Items[i]
		os, labelled := n.Labels[corev1.LabelOSStable]
		all[n.Name] = node{uid: string(n.UID), linux: !labelled || os == "linux"}
	}
	return all, nil
}

// allEndpoints returns the cached DanmEps; nobody may change them.
func (c *Controller) allEndpoints(ctx context.Context, opts ...client.ListOption) ([]v1.DanmEp, error) {
	list := &v1.DanmEpList{}
	if err := c.cached.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("list cached DanmEps: %w", err)
	}
	return list.Items, nil
}

// endpoints returns the cached DanmEps of a network.
func (c *Controller) endpoints(ctx context.Context, ref network.Ref) ([]claims.Endpoint, error) {
	eps, err := c.allEndpoints(ctx, client.MatchingFields{byNetwork: ref.String()})
	if err != nil {
		return nil, err
	}
	all := make([]claims.Endpoint, len(eps))
	for i := range eps {
		if all[i], err = objects.EndpointOf(&eps[i]); err != nil {
			return nil, fmt.Errorf("read DanmEps of %s: %w", ref, err)
		}
	}
	return all, nil
}
