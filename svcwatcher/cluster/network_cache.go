// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// networks knows which networks exist, from their metadata, and reads one when its spec
// changed: once, not for each Service.
type networks struct {
	metadata client.Reader
	direct   client.Reader

	mu    sync.Mutex
	known map[network.Ref]objects.Model
}

// standing is what a network is to a namespace.
type standing struct {
	exists, allowed bool
	// Model's Network is nil when the network does not exist, or is invalid.
	objects.Model
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
	m, err := n.read(ctx, ref, objects.VersionOf(meta))
	if err != nil {
		return standing{}, err
	}
	return standing{exists: true, allowed: m.Network == nil || m.Network.Allows(namespace), Model: m}, nil
}

// read returns a network of that version or a later one.
func (n *networks) read(ctx context.Context, ref network.Ref, version objects.Version) (objects.Model, error) {
	n.mu.Lock()
	m, ok := n.known[ref]
	n.mu.Unlock()
	if ok && m.Version == version {
		return m, nil
	}
	obj, err := objects.New(ref.Kind)
	if err != nil {
		return objects.Model{}, err
	}
	if err := n.direct.Get(ctx, objects.Key(ref), obj); err != nil {
		return objects.Model{}, fmt.Errorf("get %s: %w", ref, err)
	}
	m = objects.ModelOf(obj)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil {
		n.known = map[network.Ref]objects.Model{}
	}
	n.known[ref] = m
	return m, nil
}

func (n *networks) forget(ref network.Ref) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.known, ref)
}
