// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/delegate"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/ipvlan"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/macvlan"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/slave"
	"github.com/patchbay-cni/patchbay/daemon/internal/cluster"
	"github.com/patchbay-cni/patchbay/daemon/internal/firewall"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/daemon/internal/kernel"
	"github.com/patchbay-cni/patchbay/daemon/internal/metrics"
	"github.com/patchbay-cni/patchbay/daemon/internal/server"
	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/version"
	"github.com/patchbay-cni/patchbay/netwatcher"
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
	// sourceGuard keeps Pods from sending in the name of others.
	sourceGuard *firewall.SourceGuard
	conn        *cluster.Connection
	networks    *cluster.NetworkCache
	nodes       *cluster.NodeNetworks
	// attachments are Multus' networks that ask for host links.
	attachments       *cluster.AttachmentCache
	nodeState         *cluster.NodeState
	danmEpWatcher     *cluster.DanmEpWatcher
	pods              *cluster.Pods
	addresses         *cluster.DeferredAllocator
	usedNetworks      *cluster.NodeEntries
	publisher         *cluster.Publisher
	networkConditions *cluster.NetworkConditions
	finalizers        *cluster.Finalizers

	// The use cases.
	watcher *netwatcher.Reconciler
	service *attach.Service
	server  *server.Server

	// recoveryStarted says that a network recovers.
	recoveryStarted chan struct{}
	// ready says that Pods can be attached.
	ready atomic.Bool
}

// newDaemon takes the journal's lock and wires the rest. It does not need the
// API server.
func newDaemon(ctx context.Context, o *options) (*daemon, error) {
	d := &daemon{
		options: o, log: logr.FromContextOrDiscard(ctx),
		metrics:         metrics.New(version.String()),
		addresses:       cluster.NewDeferredAllocator(),
		recoveryStarted: make(chan struct{}, 1),
		usedNetworks:    cluster.NewNodeEntries(o.node),
	}
	if err := errors.Join(d.openDependencies(ctx), d.wire(ctx)); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// openDependencies opens what is outside: disk, kernel, API server.
func (d *daemon) openDependencies(ctx context.Context) error {
	holder, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read host name: %w", err)
	}
	d.log.Info("Starting", "version", version.String(), "node", d.node)
	options := journal.Options{Holder: holder, Wait: journal.DefaultWait}
	if d.journal, err = journal.OpenContext(ctx, d.options.journal, options); err != nil {
		return d.withRepairSteps(err)
	}
	if err := kernel.RemountSysctlsWritable(); err != nil {
		return err
	}
	if d.kernel, err = kernel.Open(""); err != nil {
		return err
	}
	if err := d.openFirewall(); err != nil {
		return err
	}
	if d.config, err = app.RESTConfig(d.kubeconfig); err != nil {
		return fmt.Errorf("read API server's address and credentials: %w", err)
	}
	d.conn, err = cluster.Connect(d.config, d.node)
	return err
}

// openFirewall opens what filters packets. The guard knows the Pods that are attached before
// it guards a link. With a damaged journal no link is looked at, and its table stays as the
// daemon before left it: this one stays for the DELs.
func (d *daemon) openFirewall() (err error) {
	if d.firewall, err = firewall.Open(""); err != nil {
		return err
	}
	if d.sourceGuard, err = firewall.OpenSourceGuard(""); err != nil {
		return err
	}
	records, err := d.journal.List()
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return fmt.Errorf("list attached Pods: %w", err)
	}
	d.sourceGuard.Restore(slave.RecordedSources(records))
	return nil
}

// withRepairSteps adds to an error of a damaged journal what to do. Only a node without Pods
// can do without its records.
func (d *daemon) withRepairSteps(err error) error {
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
	d.networkConditions = cluster.NewNetworkConditions(d.conn.Direct)
	d.finalizers = cluster.NewFinalizers(d.conn.Cache, d.addresses)
	d.networks = cluster.NewNetworkCache(d.conn, d.log, cluster.NetworkCacheOptions{
		OnChange: d.networkChanged, Observer: recoveryTrigger{d.addresses, d}, OnRead: d.networkRead,
	})
	if d.nodeState, err = cluster.WatchNode(ctx, d.conn); err != nil {
		return err
	}
	d.publisher = cluster.NewPublisher(cluster.PublisherConfig{
		Client: d.conn.Direct, Records: d.journal, Coverage: d.addresses, Recovery: d.addresses, Node: d.nodeState.Identity,
	})
	d.danmEpWatcher, err = cluster.WatchDanmEps(ctx, d.conn, cluster.DanmEpWatcherOptions{
		Records: d.journal.List, Recheck: d.publisher.Recheck, NodeGone: d.nodeState.Gone,
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
	d.finalizers.Enqueue(ref)
}

// networkRead tells those who look into objects.
func (d *daemon) networkRead(obj client.Object, net *network.Network, err error) {
	d.usedNetworks.Observe(obj, net, err)
	if key, ok := cluster.RecoveringNetwork(obj); ok {
		recoveryTrigger{d.addresses, d}.Reassert(key)
	}
	d.networkConditions.Observe(obj, net, err)
}

// wireLinks makes what keeps the host's links.
func (d *daemon) wireLinks(ctx context.Context) error {
	release, err := kernel.OSRelease()
	if err != nil {
		return err
	}
	events, err := cluster.NewEvents(ctx, d.conn)
	if err != nil {
		return err
	}
	d.attachments = cluster.NewAttachmentCache(d.conn, func() { d.watcher.Trigger() })
	d.watcher = netwatcher.New(netwatcher.Config{
		Node: d.node, Version: version.String(), KernelVersion: release, VTEPRanges: d.vtepRanges, Log: d.log.WithName("netwatcher"),
		Kernel: d.kernel, Firewall: d.firewall, SourceGuard: d.sourceGuard, KubeClient: &cluster.HostLinks{NetworkCache: d.networks, Attachments: d.attachments, Nodes: d.nodes}, Pods: podLinks{d.journal},
		Observer: linkObserver{d.metrics.RegisterLinks(), func(n netwatcher.LinkEvent) { events.ReportLinkEvent(ctx, d.nodes, n) }},
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
		BootID: boot, KubeClient: lookup, Addresses: d.addresses, Journal: linkJournal{d.journal, d.watcher.PodDetached},
		HostLinks: d.watcher, NetworkNamespaces: d.kernel, Publisher: d.publisher,
		Prober: d.metrics.InstrumentProber(d.kernel),
		Backends: map[string]attach.Backend{
			v1.TypeIPVLAN:  d.metrics.InstrumentBackend(v1.TypeIPVLAN, ipvlan.New(d.kernel, d.sourceGuard)),
			v1.TypeMACVLAN: d.metrics.InstrumentBackend(v1.TypeMACVLAN, macvlan.New(d.kernel, d.sourceGuard)),
		},
		Delegate: d.metrics.InstrumentBackend("delegate", delegate.New(delegate.Options{HostRoot: d.hostRoot})),
	})
	d.server = server.New(server.Config{
		Socket: d.socket, PendingDir: d.pending, Handler: d.service,
		Log: d.log.WithName("server"), Observe: d.metrics.ObserveRequest,
	})
	return nil
}

// wireMetrics says how the daemon stands to whoever looks.
func (d *daemon) wireMetrics() {
	d.metrics.RegisterGauge("patchbay_publisher_pending", "Sandboxes whose DanmEps or addresses wait to be written.",
		func() float64 { return float64(d.publisher.Pending()) })
	d.metrics.RegisterGauge("patchbay_networks", "Valid networks in the cluster.",
		func() float64 { return float64(len(d.networks.List())) })
	d.metrics.RegisterGauge("patchbay_warm_pool_usable", "1 while addresses that are kept ready may be handed out: the Node was there in the last 10 minutes.",
		func() float64 {
			if d.nodeState.WarmPoolUsable() {
				return 1
			}
			return 0
		})
	d.metrics.RegisterGauge("patchbay_journal_damaged", "1 while no Pod can be attached because records of the journal are damaged or missing.",
		func() float64 {
			if errors.Is(d.addresses.Err(), journal.ErrCorrupt) {
				return 1
			}
			return 0
		})
	d.metrics.RegisterAddresses(d.addresses.Stats)
	d.metrics.RegisterDroppedPackets(d.firewall.Dropped, firewall.CounterReceived, firewall.CounterForwarded)
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
	if d.sourceGuard != nil {
		errs = append(errs, d.sourceGuard.Close())
	}
	if d.journal != nil {
		errs = append(errs, d.journal.Close())
	}
	return errors.Join(errs...)
}
