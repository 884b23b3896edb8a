// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/daemon/backend/delegate"
	"github.com/patchbay-cni/patchbay/daemon/backend/ipvlan"
	"github.com/patchbay-cni/patchbay/daemon/backend/macvlan"
	"github.com/patchbay-cni/patchbay/daemon/cluster"
	"github.com/patchbay-cni/patchbay/daemon/firewall"
	"github.com/patchbay-cni/patchbay/daemon/journal"
	"github.com/patchbay-cni/patchbay/daemon/server"
)

// wire connects the rim with the use cases.
func (d *daemon) wire(ctx context.Context) error {
	if d.conn == nil {
		return nil // openRim has said why
	}
	if err := d.wireCluster(ctx); err != nil {
		return err
	}
	if err := errors.Join(d.wireLinks(ctx), d.wireService(ctx)); err != nil {
		return err
	}
	d.wireMetrics()
	return nil
}

// wireMetrics says how the daemon stands to whoever looks.
func (d *daemon) wireMetrics() {
	d.metrics.Gauge("patchbay_publisher_pending", "Sandboxes whose DanmEps or addresses wait to be written.",
		func() float64 { return float64(d.publisher.Pending()) })
	d.metrics.Gauge("patchbay_networks", "Valid networks in the cluster.",
		func() float64 { return float64(len(d.networks.List())) })
	d.metrics.Gauge("patchbay_holds_usable", "1 while addresses that are kept ready may be handed out: the Node was there in the last 10 minutes.",
		func() float64 {
			if d.own.Usable() {
				return 1
			}
			return 0
		})
	d.metrics.Gauge("patchbay_journal_damaged", "1 while no Pod can be attached because records of the journal are damaged or missing.",
		func() float64 {
			if errors.Is(d.addresses.Err(), journal.ErrCorrupt) {
				return 1
			}
			return 0
		})
	d.metrics.Addresses(d.addresses.Stats)
	d.metrics.Dropped(d.firewall.Dropped, firewall.Received, firewall.Forwarded)
}

// wireCluster makes what watches and writes the API server's objects.
func (d *daemon) wireCluster(ctx context.Context) (err error) {
	d.validity = cluster.NewValidity(d.conn.Direct)
	d.drain = cluster.NewDrain(d.conn.Cache, d.addresses)
	d.networks = cluster.NewNetworks(d.conn, d.log, cluster.NetworksOptions{
		Changed: d.networkChanged, Moves: moves{d.addresses, d}, Read: d.networkRead,
	})
	if d.own, err = cluster.WatchNode(ctx, d.conn); err != nil {
		return err
	}
	d.publisher = cluster.NewPublisher(cluster.PublisherConfig{
		Client: d.conn.Direct, Records: d.journal, Coverage: d.addresses, Recovery: d.addresses, Host: d.own.Host,
	})
	d.vanished, err = cluster.WatchEndpoints(ctx, d.conn, cluster.VanishedOptions{
		Records: d.journal.List, Recheck: d.publisher.Recheck, NodeGone: d.own.Gone,
	})
	if err != nil {
		return err
	}
	d.nodes, err = cluster.WatchNodeNetworks(ctx, d.conn, func() { d.watcher.Trigger() })
	return err
}

// wireService makes what serves the plugin.
func (d *daemon) wireService(ctx context.Context) error {
	boot, err := journal.BootID()
	if err != nil {
		return err
	}
	lookup, err := cluster.NewLookup(ctx, d.conn, d.networks)
	if err != nil {
		return err
	}
	d.pods = lookup.Pods
	d.service = attach.New(attach.Config{
		BootID: boot, Cluster: lookup, Addresses: d.addresses, Journal: linkJournal{d.journal, d.watcher.Released},
		HostLinks: d.watcher, Namespaces: d.kernel, Publisher: d.publisher,
		Prober: d.metrics.Prober(d.kernel),
		Backends: map[string]attach.Backend{
			v1.TypeIPVLAN:  d.metrics.Backend(v1.TypeIPVLAN, ipvlan.New(d.kernel, d.guard)),
			v1.TypeMACVLAN: d.metrics.Backend(v1.TypeMACVLAN, macvlan.New(d.kernel, d.guard)),
		},
		Delegate: d.metrics.Backend("delegate", delegate.New(delegate.Options{HostRoot: d.hostRoot})),
	})
	d.server = server.New(server.Config{
		Socket: d.socket, Pending: d.pending, Handler: d.service,
		Log: d.log.WithName("server"), Observe: d.metrics.Request,
	})
	return nil
}
