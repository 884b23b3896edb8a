// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/daemon/backend/delegate"
	"github.com/patchbay-cni/patchbay/daemon/backend/ipvlan"
	"github.com/patchbay-cni/patchbay/daemon/backend/macvlan"
	"github.com/patchbay-cni/patchbay/daemon/backend/slave"
	"github.com/patchbay-cni/patchbay/daemon/cluster"
	"github.com/patchbay-cni/patchbay/daemon/firewall"
	"github.com/patchbay-cni/patchbay/daemon/journal"
	"github.com/patchbay-cni/patchbay/daemon/kernel"
	"github.com/patchbay-cni/patchbay/daemon/metrics"
	"github.com/patchbay-cni/patchbay/daemon/server"
	"github.com/patchbay-cni/patchbay/netwatcher"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/version"
)

// daemon is everything, wired and not yet running.
type daemon struct {
	*options
	log     logr.Logger
	metrics *metrics.Metrics
	// config is how the API server is reached.
	config *rest.Config

	// The rim.
	journal  *journal.Journal
	kernel   *kernel.Kernel
	firewall *firewall.Firewall
	// guard keeps Pods from sending in the name of others.
	guard    *firewall.Guard
	conn     *cluster.Connection
	networks *cluster.Networks
	nodes    *cluster.NodeNetworks
	// attachments are Multus' networks that ask for host links.
	attachments *cluster.Attachments
	own         *cluster.NodeState
	vanished    *cluster.Vanished
	pods        *cluster.Pods
	addresses   *cluster.Addresses
	holdings    *cluster.Holdings
	publisher   *cluster.Publisher
	validity    *cluster.Validity
	drain       *cluster.Drain

	// The use cases.
	watcher *netwatcher.Reconciler
	service *attach.Service
	server  *server.Server

	// recovery says that a network recovers.
	recovery chan struct{}
	// ready says that Pods can be attached.
	ready atomic.Bool
}

// newDaemon takes the journal's lock and wires the rest. It does not need the
// API server.
func newDaemon(ctx context.Context, o *options) (*daemon, error) {
	d := &daemon{
		options: o, log: logr.FromContextOrDiscard(ctx),
		metrics:   metrics.New(version.String()),
		addresses: cluster.NewAddresses(),
		recovery:  make(chan struct{}, 1),
		holdings:  cluster.NewHoldings(o.node),
	}
	if err := errors.Join(d.openRim(ctx), d.wire(ctx)); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// openRim opens what is outside: disk, kernel, API server.
func (d *daemon) openRim(ctx context.Context) error {
	holder, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read host name: %w", err)
	}
	d.log.Info("Starting", "version", version.String(), "node", d.node)
	options := journal.Options{Holder: holder, Wait: journal.DefaultWait}
	if d.journal, err = journal.OpenContext(ctx, d.options.journal, options); err != nil {
		return d.howToMend(err)
	}
	if err := kernel.UnlockSysctls(); err != nil {
		return err
	}
	if d.kernel, err = kernel.Open(""); err != nil {
		return err
	}
	if err := d.openFilters(); err != nil {
		return err
	}
	if d.config, err = restConfig(d.kubeconfig); err != nil {
		return fmt.Errorf("read API server's address and credentials: %w", err)
	}
	d.conn, err = cluster.Connect(d.config, d.node)
	return err
}

// openFilters opens what filters packets. The guard knows the Pods that are attached before
// it guards a link. With a damaged journal no link is looked at, and its table stays as the
// daemon before left it: this one stays for the DELs.
func (d *daemon) openFilters() (err error) {
	if d.firewall, err = firewall.Open(""); err != nil {
		return err
	}
	if d.guard, err = firewall.OpenGuard(""); err != nil {
		return err
	}
	records, err := d.journal.List()
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return fmt.Errorf("list attached Pods: %w", err)
	}
	d.guard.Load(slave.RecordedSources(records))
	return nil
}

// restConfig is the service account's, or that of a kubeconfig.
func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

// howToMend adds to an error of a damaged journal what to do. Only a node without Pods
// can do without its records.
func (d *daemon) howToMend(err error) error {
	if !errors.Is(err, journal.ErrCorrupt) {
		return err
	}
	return fmt.Errorf("%w; to mend it, drain the node, remove %s and delete this Pod of patchbayd", err, d.options.journal)
}

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

// networkChanged tells those who act on networks.
func (d *daemon) networkChanged(ref network.Ref) {
	d.watcher.Trigger()
	d.drain.Look(ref)
}

// networkRead tells those who look into objects.
func (d *daemon) networkRead(obj client.Object, net *network.Network, err error) {
	d.holdings.Look(obj, net, err)
	if key, ok := cluster.Recovering(obj); ok {
		moves{d.addresses, d}.Reassert(key)
	}
	d.validity.Look(obj, net, err)
}

// wireLinks makes what keeps the host's links.
func (d *daemon) wireLinks(ctx context.Context) error {
	release, err := kernel.Release()
	if err != nil {
		return err
	}
	events, err := cluster.NewEvents(ctx, d.conn)
	if err != nil {
		return err
	}
	d.attachments = cluster.NewAttachments(d.conn, func() { d.watcher.Trigger() })
	d.watcher = netwatcher.New(netwatcher.Config{
		Node: d.node, Version: version.String(), KernelVersion: release, Ranges: d.vtepRanges, Log: d.log.WithName("netwatcher"),
		Kernel: d.kernel, Firewall: d.firewall, Sources: d.guard, Cluster: &cluster.HostLinks{Models: d.networks, Attachments: d.attachments, Nodes: d.nodes}, Pods: podLinks{d.journal},
		Observer: linkObserver{d.metrics.Links(), func(n netwatcher.News) { events.News(ctx, d.nodes, n) }},
	})
	return nil
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

// close gives the locks back.
func (d *daemon) close() error {
	var errs []error
	d.addresses.Close()
	if d.kernel != nil {
		errs = append(errs, d.kernel.Close())
	}
	if d.firewall != nil {
		errs = append(errs, d.firewall.Close())
	}
	if d.guard != nil {
		errs = append(errs, d.guard.Close())
	}
	if d.journal != nil {
		errs = append(errs, d.journal.Close())
	}
	return errors.Join(errs...)
}
