// SPDX-License-Identifier: Apache-2.0

package networkcache

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// DefaultNetwork returns the ClusterNetwork default, the error of an invalid one, and neither if the cache
// has none.
func (c *Cache) DefaultNetwork() (*network.Network, error) {
	m, _ := c.models.get(network.Ref{Kind: v1.KindClusterNetwork, Name: v1.DefaultNetworkName})
	return m.Network, m.Err
}

// ForbiddenIDs returns the NetworkIDs of all ClusterNetworks of other CNI plugins that Pods of a namespace may
// not use. An empty namespace stands for one that no AllowedTenants has. It reads from the API server until the
// cache is filled. The error wraps attach.ErrTryAgain.
func (c *Cache) ForbiddenIDs(ctx context.Context, namespace string) (map[string]bool, error) {
	forbidden := map[string]bool{}
	add := func(n *network.Network) {
		if n != nil && n.Ref.Kind == v1.KindClusterNetwork && n.Delegates() && !n.Allows(namespace) {
			forbidden[n.ID] = true
		}
	}
	if c.Ready() {
		for _, n := range c.List() {
			add(n)
		}
		return forbidden, nil
	}
	ctx, cancel := context.WithTimeout(ctx, kubeclient.RequestTimeout)
	defer cancel()
	err := c.forEachOfKind(ctx, v1.KindClusterNetwork, func(obj client.Object, _ network.Ref, _ time.Time) {
		add(kube.ParseNetwork(obj).Network)
	})
	if apierrors.IsNotFound(err) {
		err = c.conn.NotFoundError(ctx, v1.KindClusterNetwork, err)
	}
	if err == nil || errors.Is(err, attach.ErrNotFound) { // without the kind there is no network
		return forbidden, nil
	}
	return nil, kubeclient.AttachError(err)
}
