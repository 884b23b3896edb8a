// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// networks knows which networks exist, from their metadata, and reads whom a
// ClusterNetwork is for when its spec changed: once, not for each Service.
type networks struct {
	metadata client.Reader
	direct   client.Reader

	mu      sync.Mutex
	tenants map[string]tenants // by name of the ClusterNetwork
}

type tenants struct {
	version objects.Version
	allowed []string
}

// standing is what a network is to a namespace. The UID is empty when there is none.
type standing struct {
	uid     string
	allowed bool
}

// look tells what a network is to a namespace.
func (n *networks) look(ctx context.Context, ref network.Ref, namespace string) (standing, error) {
	meta := objects.Metadata(ref.Kind)
	err := n.metadata.Get(ctx, objects.Key(ref), meta)
	if apierrors.IsNotFound(err) {
		n.forget(ref)
		return standing{}, nil
	}
	if err != nil {
		return standing{}, fmt.Errorf("get cached %s: %w", ref, err)
	}
	if ref.Kind != v1.KindClusterNetwork {
		return standing{uid: string(meta.UID), allowed: ref.Namespace == namespace}, nil
	}
	allowed, err := n.allowed(ctx, ref, objects.VersionOf(meta))
	if err != nil {
		return standing{}, err
	}
	return standing{uid: string(meta.UID), allowed: len(allowed) == 0 || slices.Contains(allowed, namespace)}, nil
}

// allowed returns AllowedTenants of a ClusterNetwork.
func (n *networks) allowed(ctx context.Context, ref network.Ref, version objects.Version) ([]string, error) {
	n.mu.Lock()
	known, ok := n.tenants[ref.Name]
	n.mu.Unlock()
	if ok && known.version == version {
		return known.allowed, nil
	}
	net := &v1.ClusterNetwork{}
	if err := n.direct.Get(ctx, objects.Key(ref), net); err != nil {
		return nil, fmt.Errorf("get %s: %w", ref, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tenants == nil {
		n.tenants = map[string]tenants{}
	}
	n.tenants[ref.Name] = tenants{version: objects.VersionOf(net), allowed: net.Spec.AllowedTenants}
	return net.Spec.AllowedTenants, nil
}

func (n *networks) forget(ref network.Ref) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ref.Kind == v1.KindClusterNetwork {
		delete(n.tenants, ref.Name)
	}
}
