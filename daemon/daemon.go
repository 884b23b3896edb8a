// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/addresses"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/delegate"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/slave"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/sriov"
	"github.com/patchbay-cni/patchbay/daemon/internal/danmep"
	"github.com/patchbay-cni/patchbay/daemon/internal/firewall"
	"github.com/patchbay-cni/patchbay/daemon/internal/install"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/daemon/internal/kernel"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/daemon/internal/metrics"
	"github.com/patchbay-cni/patchbay/daemon/internal/networkcache"
	"github.com/patchbay-cni/patchbay/daemon/internal/nodestate"
	"github.com/patchbay-cni/patchbay/daemon/internal/podresources"
	"github.com/patchbay-cni/patchbay/daemon/internal/pods"
	"github.com/patchbay-cni/patchbay/daemon/internal/server"
	"github.com/patchbay-cni/patchbay/daemon/internal/sysfs"
	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/securemetrics"
	"github.com/patchbay-cni/patchbay/internal/version"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// daemon has all parts of the node daemon. newDaemon connects them, and run runs them.
type daemon struct {
	*options
	log       logr.Logger
	registry  *prometheus.Registry
	metrics   *metrics.Metrics
	readiness readiness

	// Access to the node.
	journal     *journal.Journal
	host        *kernel.Host
	firewall    *firewall.Firewall
	sourceGuard *firewall.SourceGuard
	devices     *podresources.Client

	// Access to the API server.
	config      *rest.Config
	conn        *kubeclient.Connection
	networks    *networkcache.Cache
	attachments *networkcache.Attachments
	nodes       *nodestate.NodeNetworks
	nodeState   *nodestate.NodeState
	events      *pods.EventRecorder
	pods        *pods.Getter

	// Background work.
	allocator         *allocatorManager
	publisher         *danmep.Publisher
	danmEpWatcher     *danmep.Watcher
	danmEpReporter    *danmep.Reporter
	networkConditions *networkcache.Conditions
	finalizers        *networkcache.Finalizers
	recoveries        recoveryTrigger
	installation      *installation

	// Pods and links.
	watcher *netwatcher.Reconciler
	service *attach.Service
	server  *server.Server
}

// newDaemon locks the journal, opens the node's kernel interfaces, and connects all parts. It
// sends no request to the API server.
func newDaemon(ctx context.Context, o *options) (*daemon, error) {
	deferred := addresses.NewDeferredAllocator()
	d := &daemon{
		options: o, log: logr.FromContextOrDiscard(ctx),
		registry:   prometheus.NewRegistry(),
		readiness:  readiness{allocator: deferred},
		recoveries: recoveryTrigger{DeferredAllocator: deferred, started: make(chan struct{}, 1)},
		allocator:  &allocatorManager{deferred: deferred, entries: networkcache.NewNodeEntries(o.node)},
	}
	d.metrics = metrics.Register(d.registry, version.String(), d.metricSources())
	err := d.open(ctx)
	if err == nil {
		err = d.connect(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// open opens the journal, the kernel's interfaces and the connection to the API server.
func (d *daemon) open(ctx context.Context) error {
	holder, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read host name: %w", err)
	}
	d.log.Info("Starting", "version", version.String(), "node", d.node)
	options := journal.Options{Holder: holder, Wait: journal.DefaultWait}
	if d.journal, err = journal.OpenContext(ctx, d.options.journal, options); err != nil {
		return withRepairSteps(err, d.options.journal)
	}
	if err := kernel.RemountSysctlsWritable(); err != nil {
		return err
	}
	if d.host, err = kernel.Open(""); err != nil {
		return err
	}
	if err := d.openFirewall(); err != nil {
		return err
	}
	if d.devices, err = podresources.New(podresources.Options{HostRoot: d.hostRoot}); err != nil {
		return err
	}
	if d.config, err = app.RESTConfig(d.kubeconfig); err != nil {
		return fmt.Errorf("read API server's address and credentials: %w", err)
	}
	if d.conn, err = kubeclient.Connect(d.config, d.node); err != nil {
		return err
	}
	d.conn.Kinds.Log = d.log
	return nil
}

// withRepairSteps adds the steps of a repair to an error about a corrupt journal. Only a node
// without Pods can lose its records.
func withRepairSteps(err error, path string) error {
	if !errors.Is(err, journal.ErrCorrupt) {
		return err
	}
	return fmt.Errorf("%w; to repair it, drain the node, remove %s and delete this Pod of patchbayd", err, path)
}

// openFirewall opens the packet filters. The source guard needs the addresses of the attached
// Pods before it guards a link. With a corrupt journal the daemon only handles DELs: it manages
// no link, and the rules of the earlier daemon stay.
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

// connect creates the parts that use what open opened.
func (d *daemon) connect(ctx context.Context) error {
	if err := d.connectCluster(ctx); err != nil {
		return err
	}
	if err := d.connectLinks(ctx); err != nil {
		return err
	}
	if err := d.connectService(ctx); err != nil {
		return err
	}
	d.connectAllocator(ctx)
	d.installation = &installation{
		options: d.options, log: d.log, conn: d.conn, journal: d.journal,
		removePacketFilters: func(ctx context.Context) error {
			return errors.Join(d.firewall.Remove(), d.sourceGuard.Remove(ctx), d.host.Links().RemoveTagFilters(ctx))
		},
		links: d.watcher.Config, report: d.nodes.ReportCleanUp,
	}
	return nil
}

// connectCluster creates the parts that read and write objects of the API server.
func (d *daemon) connectCluster(ctx context.Context) (err error) {
	deferred := d.allocator.deferred
	d.networkConditions = networkcache.NewConditions(d.conn.Direct)
	d.finalizers = networkcache.NewFinalizers(d.conn.Cache, deferred)
	d.networks = networkcache.New(d.conn, d.log, networkcache.Options{
		OnChange: d.networkChanged, Observer: failureForgetter{d.recoveries, d.metrics.Failures}, OnRead: d.networkRead,
	})
	if d.nodeState, err = nodestate.WatchNode(ctx, d.conn); err != nil {
		return err
	}
	d.publisher = danmep.NewPublisher(danmep.PublisherConfig{
		Client: d.conn.Direct, Records: d.journal, Coverage: deferred, Recovery: deferred, Node: d.nodeState.Identity,
	})
	d.danmEpWatcher, err = danmep.Watch(ctx, d.conn, danmep.WatcherOptions{
		Records: d.journal.List, Recheck: d.publisher.Recheck, NodeGone: d.nodeState.Gone,
	})
	if err != nil {
		return err
	}
	if d.events, err = pods.NewEventRecorder(ctx, d.conn); err != nil {
		return err
	}
	d.danmEpReporter = &danmep.Reporter{
		Records: d.journal.List, Failure: d.publisher.Failure,
		Report: func(ctx context.Context, c *metav1.Condition) error {
			return d.nodes.ReportCondition(ctx, v1.ConditionDanmEpsMissing, c)
		},
	}
	d.nodes, err = nodestate.WatchNodeNetworks(ctx, d.conn, func() { d.watcher.Trigger() })
	return err
}

// networkChanged receives the networks that changed.
func (d *daemon) networkChanged(ref network.Ref) {
	d.watcher.Trigger()
	d.finalizers.Enqueue(ref)
}

// networkRead receives the networks that were read in full. It is a networkcache.ReadFunc.
func (d *daemon) networkRead(obj client.Object, net *network.Network, err error) {
	d.allocator.entries.Observe(obj, net, err)
	if key, ok := networkcache.RecoveringNetwork(obj); ok {
		d.recoveries.ReportToRecovery(key)
	}
	d.networkConditions.Observe(obj, net, err)
}

// connectLinks creates the reconciler of the host's links.
func (d *daemon) connectLinks(ctx context.Context) error {
	release, err := kernel.OSRelease()
	if err != nil {
		return err
	}
	d.attachments = networkcache.NewAttachments(d.conn, func() { d.watcher.Trigger() })
	checker := delegate.Checker{HostRoot: d.hostRoot, BinDir: d.cniBin, ConfDir: d.cniConf, Node: d.nodeConfigurations()}
	d.readiness.defaultDelegate = checker.CheckNamed
	d.watcher = netwatcher.New(netwatcher.Config{
		Node: d.node, Version: version.String(), KernelVersion: release, VTEPRanges: d.vtepRanges, Log: d.log.WithName("netwatcher"),
		Kernel: d.host.Links(), Firewall: d.firewall, SourceGuard: d.sourceGuard, Pods: podLinks{d.journal},
		Delegates: configurationChecker{
			Checker:  checker,
			networks: d.networks, installed: func() bool { return d.install && d.readiness.ready.Load() },
		},
		KubeClient: linkKubeClient{networks: d.networks, attachments: d.attachments, nodes: d.nodes},
		Observer: linkObserver{d.metrics.Links, func(e netwatcher.LinkEvent) {
			d.events.ReportLinkEvent(d.nodes.Reference(ctx), e)
		}},
	})
	return nil
}

// connectService creates the service that attaches Pods, and its server.
func (d *daemon) connectService(ctx context.Context) error {
	bootID, err := journal.BootID()
	if err != nil {
		return err
	}
	kubeClient, err := pods.NewClient(ctx, d.conn, d.networks, d.events)
	if err != nil {
		return err
	}
	d.pods = kubeClient.Pods()
	others := delegate.New(delegate.Options{HostRoot: d.hostRoot, Node: d.nodeConfigurations()})
	d.service = attach.New(attach.Config{
		BootID: bootID, KubeClient: d.metrics.Failures.InstrumentKubeClient(kubeClient), Addresses: d.allocator.deferred,
		Journal: linkJournal{d.journal, d.watcher.PodDetached}, HostLinks: d.watcher,
		NetworkNamespaces: d.host.Sandboxes(), Publisher: d.publisher,
		Prober:        d.metrics.InstrumentProber(d.host.Prober()),
		AddressOwners: danmep.NewOwners(d.conn.Direct), KnownNetwork: d.networks.Known, Devices: d.devices,
		Backends: map[string]attach.Backend{
			v1.TypeIPVLAN:  d.metrics.InstrumentBackend(v1.TypeIPVLAN, slave.NewIPVLAN(d.host.Slaves(), d.sourceGuard)),
			v1.TypeMACVLAN: d.metrics.InstrumentBackend(v1.TypeMACVLAN, slave.NewMACVLAN(d.host.Slaves(), d.sourceGuard)),
			v1.TypeSRIOV: d.metrics.InstrumentBackend(v1.TypeSRIOV, sriov.New(sriov.Options{
				Kernel: d.host.Functions(sysfs.FS{Root: sysfs.DefaultRoot}), BootID: bootID,
				DeviceInfoDir: filepath.Join(d.hostRoot, deviceInfoDir), StateDir: filepath.Join(filepath.Dir(d.socket), "functions"),
			})),
		},
		Delegate: d.metrics.InstrumentBackend("delegate", others),
		Unknown:  others,
	})
	d.server = server.New(server.Config{
		Socket: d.socket, PendingDir: d.pending, Handler: d.service,
		Log: d.log.WithName("server"), Observe: d.metrics.ObserveRequest,
	})
	return nil
}

// nodeConfigurations finds the CNI configuration of Pods that have no network.
func (d *daemon) nodeConfigurations() delegate.NodeConfigurations {
	return delegate.NodeConfigurations{
		Dir: d.cniConf, Own: install.ConfigName, Disabled: !d.nodeConfiguration, Named: d.defaultDelegate, Forbidden: d.networks.ForbiddenIDs,
	}
}

// deviceInfoDir is where the Device Information Specification of the Network Plumbing Working Group has
// the files of CNI plugins, on the host.
const deviceInfoDir = "/run/k8s.cni.cncf.io/devinfo/cni"

// connectAllocator completes the allocatorManager.
func (d *daemon) connectAllocator(ctx context.Context) {
	a := d.allocator
	a.options, a.log, a.journal, a.nodeState = d.options, d.log, d.journal, d.nodeState
	a.store = d.metrics.InstrumentStore(kube.NewStore(d.conn.Direct))
	a.observe = d.metrics.ObserveClaim
	a.nodeCount = func() int { return d.nodes.NodeCount(ctx) }
	a.reserved = func(n *network.Network) []netip.Addr { return kube.ReservedNodeAddresses(n, d.nodes.NICs(ctx)) }
	a.liveAddresses = &liveAddresses{read: d.host.Sandboxes().LiveAddresses}
	a.readNetworks = d.networks.ReadAll
}

// metricSources returns the metrics that are read from other parts. The daemon serves metrics after
// connect has created these.
func (d *daemon) metricSources() metrics.Sources {
	return metrics.Sources{
		PublishQueueDepth: func() int { return d.publisher.Pending() },
		Networks:          func() int { return len(d.networks.List()) },
		WarmPoolUsable:    func() bool { return d.nodeState.WarmPoolUsable() },
		JournalDamaged:    func() bool { return errors.Is(d.allocator.deferred.Err(), journal.ErrCorrupt) },
		Addresses:         func() allocator.Stats { return d.allocator.deferred.Stats() },
		AttachedDevices:   func() []string { return d.service.AttachedDevices() },
		DroppedPackets:    func() map[string]uint64 { return d.firewall.Dropped() },
		DropPlaces:        droppedPacketPlaces(),
	}
}

// droppedPacketPlaces are the places where the packet filter counts the packets that it drops.
func droppedPacketPlaces() []string {
	return []string{firewall.CounterReceived, firewall.CounterForwarded}
}

// RegisterMetrics registers the metrics that a daemon serves, all of them with the value 0. The page
// docs/reference/metrics.md is made from them.
func RegisterMetrics(r prometheus.Registerer) {
	metrics.Register(r, version.String(), metrics.Sources{
		PublishQueueDepth: zero[int], Networks: zero[int], WarmPoolUsable: zero[bool], JournalDamaged: zero[bool],
		Addresses: zero[allocator.Stats], AttachedDevices: zero[[]string], DroppedPackets: zero[map[string]uint64], DropPlaces: droppedPacketPlaces(),
	})
}

// zero returns the zero value.
func zero[T any]() (z T) { return z }

// run runs all parts until ctx ends or one of them fails. It handles DELs from the start, and
// ADDs after the API server has answered.
func (d *daemon) run(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for _, part := range []func(context.Context) error{
		d.resumeSandboxes, d.conn.Cache.Start, d.networks.Run, d.attachments.Run, d.nodeState.Run,
		d.runNetwatcher, d.publisher.Run, d.danmEpWatcher.Run, d.danmEpReporter.Run, d.runDanmEpGC, d.runSandboxGC,
		d.finalizers.Run, d.networkConditions.Run, d.server.Run, d.serveHealth, d.serveMetrics, d.runAllocator, d.openForPods,
	} {
		group.Go(func() error { return part(groupCtx) })
	}
	return d.stop(ctx, groupCtx, group.Wait)
}

// stop waits until the parts have ended, releases the warm pool, and uninstalls Patchbay if the DaemonSet was deleted. All of
// it takes less than the Pod's termination grace period (TestStopFitsGracePeriod), because a daemon that is killed leaves
// the node as it is.
func (d *daemon) stop(ctx, partsCtx context.Context, wait func() error) error {
	err := ignoreCancellation(ctx, waitForParts(partsCtx, wait))
	released := d.allocator.releaseWarmPool(ctx)
	d.log.Info("Stopped")
	return errors.Join(err, d.installation.uninstall(ctx, released))
}

// partsTimeout is how long the parts have to end. The server cancels requests after its shutdown grace period, which is
// shorter, so that they can be rolled back.
const partsTimeout = 30 * time.Second

// waitForParts returns the error of wait, and stops waiting partsTimeout after ctx has ended: a roll-back, in which another
// CNI plugin may hang, takes longer. The next daemon finishes it from the journal, as after a crash. Until then it claims
// no address, because the context of its request has ended.
func waitForParts(ctx context.Context, wait func() error) error {
	done := make(chan error, 1)
	go func() { done <- wait() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(partsTimeout):
		return fmt.Errorf("stop: parts of the daemon still run after %s, and the next daemon finishes their work. They were stopped for: %s", partsTimeout, context.Cause(ctx).Error())
	}
}

// resumeSandboxes resumes the sandboxes of the journal. No other part waits for it: after a
// reboot it runs other CNI plugins for each sandbox, and such a plugin may hang.
func (d *daemon) resumeSandboxes(ctx context.Context) error {
	if err := d.service.Resume(ctx); err != nil && ctx.Err() == nil {
		d.log.Error(err, "Failed to resume some sandboxes of the journal")
	}
	return nil
}

// runNetwatcher manages the host's links after all networks were read.
func (d *daemon) runNetwatcher(ctx context.Context) error {
	if !waitUntil(ctx, d.hasSynced) {
		return nil
	}
	return d.watcher.Run(ctx)
}

// runDanmEpGC deletes orphaned DanmEps after the allocator has opened.
func (d *daemon) runDanmEpGC(ctx context.Context) error {
	if !waitUntil(ctx, d.allocatorOpen) {
		return nil
	}
	gc := danmep.GC{
		Client: d.conn.Direct, Node: d.node, Identity: d.nodeState.Identity, Records: d.journal.List, NetnsExists: d.host.Sandboxes().Exists,
		Addresses: d.allocator.deferred, Trigger: d.recoveries.started,
	}
	return gc.Run(ctx)
}

// runSandboxGC deletes sandboxes that are gone and got no DEL.
func (d *daemon) runSandboxGC(ctx context.Context) error {
	gc := pods.SandboxGC{
		Records: d.journal.List, NetnsExists: d.host.Sandboxes().Exists, Pods: d.pods,
		DeleteSandbox: func(ctx context.Context, rec *attach.Record) error {
			return d.service.Del(ctx, attach.Request{ContainerID: rec.ContainerID, IfName: rec.IfName})
		},
	}
	return gc.Run(ctx)
}

// serveHealth serves health checks until ctx ends. It reports also that the kinds are unknown, because a
// daemon that is ready has known them.
func (d *daemon) serveHealth(ctx context.Context) error {
	s, err := app.ListenHealth(d.healthAddress, app.AllReady(d.conn.Kinds.Check, d.readiness.check))
	if err != nil {
		return err
	}
	return s.Start(ctx)
}

// serveMetrics serves metrics to authorized clients until ctx ends.
func (d *daemon) serveMetrics(ctx context.Context) error {
	s, err := securemetrics.Listen(d.secureMetrics, d.config, d.registry, d.log)
	if err != nil {
		return err
	}
	return s.Start(ctx)
}

// runAllocator resumes the addresses of the attached Pods after the Node and all networks were read. It then
// collects unused addresses until ctx ends. It does not wait for openForPods: the API server ends the deletion
// of a CustomResourceDefinition only after this node has freed its addresses and deleted its DanmEps.
func (d *daemon) runAllocator(ctx context.Context) error {
	if !waitUntil(ctx, d.hasSynced) {
		return nil
	}
	opened, err := d.allocator.open()
	if err != nil || !opened {
		return err
	}
	d.allocator.collectUnused(ctx)
	return nil
}

// allocatorOpen reports whether the allocator has opened. With a corrupt journal it never does.
func (d *daemon) allocatorOpen() bool { return d.allocator.deferred.Err() == nil }

// openForPods makes the daemon ready. It waits for the allocator, until the API server serves all kinds and deletes
// none of them, and for the CNI configuration that a flag names: without it, no new Pod of the cluster would start.
// Only then it installs the plugin, so that the container runtime sends ADDs.
func (d *daemon) openForPods(ctx context.Context) error {
	logged := ""
	isOpen := func() bool {
		if !d.allocatorOpen() || d.conn.Kinds.Check(ctx) != nil {
			return false
		}
		err := d.readiness.defaultDelegate()
		if err != nil && err.Error() != logged {
			logged = err.Error()
			d.log.Info("Waiting for the CNI configuration of Pods without an annotation", "error", logged)
		}
		return err == nil
	}
	if !waitUntil(ctx, isOpen) {
		return nil
	}
	if err := d.installation.install(); err != nil {
		return err
	}
	d.readiness.ready.Store(true)
	d.watcher.Trigger() // the NodeNetwork may still report that the CNI configuration is missing
	d.log.Info("Ready", "networks", len(d.networks.List()))
	return nil
}

// hasSynced reports whether this node's Node, and all networks and NodeNetworks of the cluster
// were read.
func (d *daemon) hasSynced() bool {
	_, ok := d.nodeState.Identity()
	return ok && d.networks.Ready() && d.nodes.Ready()
}

// waitUntil polls until condition is true or ctx ends. It returns false when ctx ends first.
func waitUntil(ctx context.Context, condition func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// close closes what open opened.
func (d *daemon) close() error {
	var errs []error
	d.allocator.deferred.Close()
	if d.host != nil {
		errs = append(errs, d.host.Close())
	}
	if d.firewall != nil {
		errs = append(errs, d.firewall.Close())
	}
	if d.sourceGuard != nil {
		errs = append(errs, d.sourceGuard.Close())
	}
	if d.devices != nil {
		errs = append(errs, d.devices.Close())
	}
	if d.journal != nil {
		errs = append(errs, d.journal.Close())
	}
	return errors.Join(errs...)
}
