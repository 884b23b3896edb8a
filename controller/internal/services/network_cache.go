// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// networkCache finds networks by their metadata in the cache, and reads a network once for each
// version of its spec.
type networkCache struct {
	metadata client.Reader
	direct   client.Reader

	mu    sync.Mutex
	known map[network.Ref]kube.ParsedNetwork
}

// networkState is what a network is to a namespace.
type networkState struct {
	exists, allowed bool
	// otherKind is a network of the name that exists, when this one does not; the zero value for none.
	otherKind network.Ref
	// Network is nil when the network does not exist or is invalid.
	kube.ParsedNetwork
}

// stateFor returns the state of a network for a namespace.
func (n *networkCache) stateFor(ctx context.Context, ref network.Ref, namespace string) (networkState, error) {
	meta := kube.PartialMetadata(ref.Kind)
	err := n.metadata.Get(ctx, kube.ObjectKey(ref), meta)
	if apierrors.IsNotFound(err) {
		n.forget(ref)
		other, err := n.otherKind(ctx, ref, namespace)
		return networkState{otherKind: other}, err
	}
	if err != nil {
		return networkState{}, fmt.Errorf("get cached %s: %w", ref, err)
	}
	m, err := n.read(ctx, ref, kube.SpecVersionOf(meta))
	if err != nil {
		return networkState{}, err
	}
	return networkState{exists: true, allowed: m.Network == nil || m.Network.Allows(namespace), ParsedNetwork: m}, nil
}

// otherKind returns a network of the same name and of another kind that the namespace may use; the zero
// value if there is none.
func (n *networkCache) otherKind(ctx context.Context, ref network.Ref, namespace string) (network.Ref, error) {
	for _, other := range network.OtherKinds(ref, namespace) {
		meta := kube.PartialMetadata(other.Kind)
		err := n.metadata.Get(ctx, kube.ObjectKey(other), meta)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return network.Ref{}, fmt.Errorf("get cached %s: %w", other, err)
		}
		m, err := n.read(ctx, other, kube.SpecVersionOf(meta))
		if err != nil {
			return network.Ref{}, err
		}
		if m.Err == nil && !m.Network.Deleting && m.Network.Allows(namespace) {
			return other, nil
		}
	}
	return network.Ref{}, nil
}

// read returns a network at that version or a later one.
func (n *networkCache) read(ctx context.Context, ref network.Ref, version kube.SpecVersion) (kube.ParsedNetwork, error) {
	n.mu.Lock()
	m, ok := n.known[ref]
	n.mu.Unlock()
	if ok && m.Version == version {
		return m, nil
	}
	obj, err := kube.NewNetwork(ref.Kind)
	if err != nil {
		return kube.ParsedNetwork{}, err
	}
	if err := n.direct.Get(ctx, kube.ObjectKey(ref), obj); err != nil {
		return kube.ParsedNetwork{}, fmt.Errorf("get %s: %w", ref, err)
	}
	m = kube.ParseNetwork(obj)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil {
		n.known = map[network.Ref]kube.ParsedNetwork{}
	}
	n.known[ref] = m
	return m, nil
}

func (n *networkCache) forget(ref network.Ref) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.known, ref)
}
