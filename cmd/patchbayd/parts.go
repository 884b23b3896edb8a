// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/daemon/cluster"
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
	}
	return orphans.Run(ctx)
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
