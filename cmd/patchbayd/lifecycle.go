// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

// run takes up the journal, serves, and opens for ADDs when the API server has
// answered. DELs are served from the start. It ends when ctx does, or with the
// first part that fails.
func (d *daemon) run(ctx context.Context) error {
	group, working := errgroup.WithContext(ctx)
	for _, part := range []func(context.Context) error{
		d.resume, d.conn.Cache.Start, d.networks.Run, d.attachments.Run, d.watchLinks, d.publisher.Run,
		d.drain.Run, d.validity.Run, d.server.Run, d.serveHTTP, d.serveMetrics, d.open, d.sweep, d.endAbandoned,
		d.own.Run, d.vanished.Run,
	} {
		group.Go(func() error { return part(working) })
	}
	err := orderly(ctx, group.Wait())
	d.giveBack(ctx)
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
	if !await(ctx, d.known) {
		return nil
	}
	opened, err := d.openAddresses(ctx)
	if err != nil || !opened {
		return err
	}
	if err := d.putInPlace(); err != nil {
		return err
	}
	d.ready.Store(true)
	d.log.Info("Ready", "networks", len(d.networks.List()))
	d.settle(ctx)
	return nil
}

// known reports whether this node's Node and all networks and nodes of the cluster
// were read.
func (d *daemon) known() bool {
	_, ok := d.own.Host()
	return ok && d.networks.Ready() && d.nodes.Ready()
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
