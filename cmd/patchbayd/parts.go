// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/daemon/cluster"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// watchLinks keeps the host's links, once it is known which ones.
func (d *daemon) watchLinks(ctx context.Context) error {
	if !await(ctx, d.known) {
		return nil
	}
	return d.watcher.Run(ctx)
}

// sweep removes what accidents left, once the daemon is ready.
func (d *daemon) sweep(ctx context.Context) error {
	if !await(ctx, d.ready.Load) {
		return nil
	}
	orphans := cluster.Orphans{
		Client: d.conn.Direct, Node: d.node, Records: d.journal.List, Alive: d.kernel.Exists, Addresses: d.addresses,
		Now: d.recovery,
	}
	return orphans.Run(ctx)
}

// moves is where the watch of networks says what it sees.
type moves struct {
	*cluster.Addresses
	daemon *daemon
}

// Reassert has this node report to a recovery. It cannot before DanmEps are gone that
// an older state brought back, so these are looked for at once.
func (m moves) Reassert(key claims.Key) {
	m.Addresses.Reassert(key)
	select {
	case m.daemon.recovery <- struct{}{}:
	default: // a look is due already
	}
}

// endAbandoned ends sandboxes whose DEL went elsewhere.
func (d *daemon) endAbandoned(ctx context.Context) error {
	abandoned := cluster.Abandoned{
		Records: d.journal.List, Alive: d.kernel.Exists, Pods: d.pods,
		End: func(ctx context.Context, rec *attach.Record) error {
			return d.service.Del(ctx, attach.Request{ContainerID: rec.ContainerID, IfName: rec.IfName})
		},
	}
	return abandoned.Run(ctx)
}
