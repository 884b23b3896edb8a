// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// nicsFor is how long the nodes' addresses serve before they are read anew from the
// cache: parsing those of a thousand nodes for each network would take long.
const nicsFor = 10 * time.Second

// nics are the addresses of all nodes' NICs.
type nics struct {
	mu  sync.Mutex
	at  time.Time
	all []netip.Addr
}

// get returns them, read from the cache; none while it is not filled.
func (n *nics) get(ctx context.Context, cached client.Reader, now time.Time) []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now.Sub(n.at) < nicsFor {
		return n.all
	}
	list := &v1.NodeNetworkList{}
	if err := cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	n.at, n.all = now, objects.NICs(list.Items)
	return n.all
}

// reserved are the nodes' own addresses in a network, which no Pod may get.
func (c *Controller) reserved(ctx context.Context, net *network.Network) []netip.Addr {
	if net == nil {
		return nil
	}
	return objects.Reserved(net, c.nics.get(ctx, c.cached, c.cfg.Now()))
}
