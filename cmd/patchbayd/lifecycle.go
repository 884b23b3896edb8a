// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/daemon/cluster"
	"github.com/patchbay-cni/patchbay/daemon/journal"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/objects"
)

// run takes up the journal, serves, and opens for ADDs when the API server has
// answered. DELs are served from the start. It ends when ctx does, or with the
// first part that fails.
func (d *daemon) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range []func(context.Context) error{
		d.resume, d.conn.Cache.Start, d.networks.Run, d.watchLinks, d.publisher.Run,
		d.drain.Run, d.validity.Run, d.server.Run, d.serveHTTP, d.open, d.sweep, d.endAbandoned,
	} {
		group.Go(func() error { return part(ctx) })
	}
	err := group.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	d.log.Info("Stopped")
	return errors.Join(err, d.leave(ctx))
}

// resume takes up the journal. It keeps nobody waiting: after a reboot it runs
// other plugins for every sandbox that was, and one that hangs must not keep the
// node from new Pods, nor the health check from an answer.
func (d *daemon) resume(ctx context.Context) error {
	if err := d.service.Resume(ctx); err != nil && ctx.Err() == nil {
		d.log.Error(err, "Some sandboxes of the journal could not be taken up")
	}
	return nil
}

// open makes the daemon ready: it learns the Node's UID and all networks, takes
// over the addresses of its former life, and only then tells the runtime of the
// plugin.
func (d *daemon) open(ctx context.Context) error {
	if err := cluster.Persist(ctx, d.readNode); err != nil {
		return err
	}
	if !await(ctx, d.known) {
		return nil
	}
	settle, err := d.openAddresses(ctx)
	if settle == nil {
		return err
	}
	if err := d.putInPlace(); err != nil {
		return err
	}
	d.ready.Store(true)
	d.log.Info("Ready", "networks", len(d.networks.List()))
	_ = cluster.Persist(ctx, settle) // ends with ctx at the latest
	return nil
}

// readNode learns the Node's UID.
func (d *daemon) readNode(ctx context.Context) error {
	uid, err := d.conn.NodeUID(ctx)
	if err == nil {
		d.host.Store(&cluster.Host{Name: d.node, UID: uid})
	}
	return err
}

// known reports whether all networks and nodes of the cluster were read.
func (d *daemon) known() bool { return d.networks.Ready() && d.nodes.Ready() }

// openAddresses starts the node's allocator from the journal. What it returns
// frees what the former life left behind. With a damaged journal it returns nil:
// to go on without a record would free addresses that are in use, and to stop
// would keep the Pods that are to end from their DEL.
func (d *daemon) openAddresses(ctx context.Context) (settle func(context.Context) error, err error) {
	life, records, err := d.former()
	if errors.Is(err, journal.ErrCorrupt) {
		err = fmt.Errorf("%w; to mend it, drain the node, remove %s and delete this Pod of patchbayd", err, d.options.journal)
		d.log.Error(err, "No Pod can be attached")
		d.addresses.Refuse(err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	allocator := claims.New(d.metrics.Store(objects.NewStore(d.conn.Direct)), claims.Config{
		Node: d.node, NodeUID: d.host.Load().UID, Life: life, Reserved: d.reserved(ctx), Hold: -1,
	})
	uses := cluster.Uses(records)
	allocator.Resume(uses, nil)
	d.addresses.Open(allocator)
	keys := d.holdings.With(uses)
	return func(ctx context.Context) error { return allocator.Settle(ctx, keys...) }, nil
}

// former counts this life and reads the sandboxes of the former ones.
func (d *daemon) former() (life int64, records []*attach.Record, err error) {
	if life, err = d.journal.NextLife(); err != nil {
		return 0, nil, err
	}
	if records, err = d.journal.List(); err != nil {
		return 0, nil, fmt.Errorf("read the addresses in use from the journal: %w", err)
	}
	return life, records, nil
}

// await polls until so or ctx ends, and reports the former.
func await(ctx context.Context, so func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}
