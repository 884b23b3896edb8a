// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/cluster"
	"github.com/patchbay-cni/patchbay/daemon/internal/install"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/securemetrics"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// run takes up the journal, serves, and opens for ADDs when the API server has
// answered. DELs are served from the start. It ends when ctx does, or with the
// first part that fails.
func (d *daemon) run(ctx context.Context) error {
	group, working := errgroup.WithContext(ctx)
	for _, part := range []func(context.Context) error{
		d.resumeJournal, d.conn.Cache.Start, d.networks.Run, d.attachments.Run, d.runNetwatcher, d.publisher.Run,
		d.finalizers.Run, d.networkConditions.Run, d.server.Run, d.serveHealth, d.serveMetrics, d.openForPods, d.runDanmEpGC, d.runSandboxGC,
		d.nodeState.Run, d.danmEpWatcher.Run,
	} {
		group.Go(func() error { return part(working) })
	}
	err := ignoreCancellation(ctx, group.Wait())
	d.releaseWarmPool(ctx)
	d.log.Info("Stopped")
	return errors.Join(err, d.uninstallPlugin(ctx))
}

// resumeJournal takes up the journal. It keeps nobody waiting: after a reboot it runs
// other plugins for every sandbox that was, and one that hangs must not keep the
// node from new Pods, nor the health check from an answer.
func (d *daemon) resumeJournal(ctx context.Context) error {
	if err := d.service.Resume(ctx); err != nil && ctx.Err() == nil {
		d.log.Error(err, "Some sandboxes of the journal could not be taken up")
	}
	return nil
}

// runNetwatcher keeps the host's links, once it is known which ones.
func (d *daemon) runNetwatcher(ctx context.Context) error {
	if !waitUntil(ctx, d.hasSynced) {
		return nil
	}
	return d.watcher.Run(ctx)
}

// runDanmEpGC removes what accidents left, once the daemon is ready.
func (d *daemon) runDanmEpGC(ctx context.Context) error {
	if !waitUntil(ctx, d.ready.Load) {
		return nil
	}
	orphans := cluster.DanmEpGC{
		Client: d.conn.Direct, Node: d.node, Records: d.journal.List, NetnsExists: d.kernel.Exists, Addresses: d.addresses,
		Trigger: d.recoveryStarted,
	}
	return orphans.Run(ctx)
}

// runSandboxGC ends sandboxes whose DEL went elsewhere.
func (d *daemon) runSandboxGC(ctx context.Context) error {
	abandoned := cluster.SandboxGC{
		Records: d.journal.List, NetnsExists: d.kernel.Exists, Pods: d.pods,
		DeleteSandbox: func(ctx context.Context, rec *attach.Record) error {
			return d.service.Del(ctx, attach.Request{ContainerID: rec.ContainerID, IfName: rec.IfName})
		},
	}
	return abandoned.Run(ctx)
}

// serveHealth serves health checks until ctx ends.
func (d *daemon) serveHealth(ctx context.Context) error {
	l, err := net.Listen("tcp", d.healthAddress)
	if err != nil {
		return fmt.Errorf("listen for health checks on %s: %w", d.healthAddress, err)
	}
	s := &http.Server{Handler: d.healthHandler(), ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health checks: %w", err)
	}
	return nil
}

// healthHandler answers /healthz (the process works) and /readyz (Pods can be attached).
func (d *daemon) healthHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !d.ready.Load() {
			http.Error(w, d.notReadyReason(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return mux
}

// notReadyReason says why Pods cannot be attached.
func (d *daemon) notReadyReason() string {
	if err := d.addresses.Err(); err != nil {
		return err.Error()
	}
	return "the plugin is being put in place"
}

// serveMetrics serves metrics to clients that may read them, until ctx ends.
func (d *daemon) serveMetrics(ctx context.Context) error {
	s, err := securemetrics.Listen(d.secureMetrics, d.config, d.metrics.Gatherer(), d.log)
	if err != nil {
		return err
	}
	return s.Start(ctx)
}

// openForPods makes the daemon ready: it learns the Node's UID and all networks, takes
// over the addresses of its former life, and only then tells the runtime of the
// plugin.
func (d *daemon) openForPods(ctx context.Context) error {
	if !waitUntil(ctx, d.hasSynced) {
		return nil
	}
	opened, err := d.openAllocator(ctx)
	if err != nil || !opened {
		return err
	}
	if err := d.installPlugin(); err != nil {
		return err
	}
	d.ready.Store(true)
	d.log.Info("Ready", "networks", len(d.networks.List()))
	d.runAddressGC(ctx)
	return nil
}

// hasSynced reports whether this node's Node and all networks and nodes of the cluster
// were read.
func (d *daemon) hasSynced() bool {
	_, ok := d.nodeState.Identity()
	return ok && d.networks.Ready() && d.nodes.Ready()
}

// waitUntil polls until so or ctx ends, and reports the former.
func waitUntil(ctx context.Context, so func() bool) bool {
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

// openAllocator starts the node's allocator from the journal. With a damaged journal
// it reports false: to go on without a record would free addresses that are in use,
// and to stop would keep the Pods that are to end from their DEL.
func (d *daemon) openAllocator(ctx context.Context) (opened bool, err error) {
	f, err := d.readJournal()
	if errors.Is(err, journal.ErrCorrupt) {
		err = d.withRepairSteps(err)
		d.log.Error(err, "No Pod can be attached")
		d.addresses.Fail(err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	allocator := claims.New(d.metrics.InstrumentStore(kube.NewStore(d.conn.Direct)), d.allocatorConfig(ctx, f.incarnation))
	uses := cluster.RecordedUses(f.records)
	allocator.Resume(uses, f.seqs)
	d.usedNetworks.Add(uses, f.seqs)
	d.addresses.Open(allocator)
	return true, nil
}

// readJournal counts this life and reads the sandboxes of the former ones, and the seqs
// that this Node's entries had.
func (d *daemon) readJournal() (f journalState, err error) {
	if f.incarnation, err = d.journal.NextIncarnation(); err != nil {
		return f, err
	}
	if f.records, err = d.journal.List(); err != nil {
		return f, fmt.Errorf("read the addresses in use from the journal: %w", err)
	}
	host, _ := d.nodeState.Identity()
	if f.seqs, err = d.journal.Seqs(host.UID); err != nil {
		return f, fmt.Errorf("read what this node had of networks from the journal: %w", err)
	}
	return f, nil
}

// journalState is what the journal has of former lives.
type journalState struct {
	incarnation int64
	records     []*attach.Record
	seqs        map[claims.Key]int64
}

// allocatorConfig is what the allocator needs to know of this node.
func (d *daemon) allocatorConfig(ctx context.Context, life int64) claims.Config {
	host, _ := d.nodeState.Identity()
	return claims.Config{
		Node: host.Name, NodeUID: host.UID, Life: life,
		Reserved: d.reservedAddresses(ctx),
		Nodes:    func() int { return d.nodes.NodeCount(ctx) },
		Usable:   d.nodeState.WarmPoolUsable,
		Gone:     d.nodeState.Gone,
		Live:     (&liveAddresses{read: d.kernel.LiveAddresses}).get,
		Remember: func(key claims.Key, seq int64) error { return d.journal.PutSeq(host.UID, key, seq) },
		Observe:  d.metrics.ObserveClaim,
		Hold:     zeroToDisabled(d.warmPoolLimit), Cool: zeroToDisabled(d.cooldown),
		Report: func(err error) { d.log.Error(err, "Addresses are not as they were left") },
	}
}

// zeroToDisabled turns a flag's 0, which is none, into what claims takes for none.
func zeroToDisabled[N int | time.Duration](n N) N {
	if n == 0 {
		return -1
	}
	return n
}

// reservedAddresses are the nodes' own addresses in a network's subnets: no Pod gets one.
func (d *daemon) reservedAddresses(ctx context.Context) func(*network.Network) []netip.Addr {
	return func(n *network.Network) []netip.Addr { return kube.ReservedNodeAddresses(n, d.nodes.NICs(ctx)) }
}

// installPlugin installs the plugin and then its configuration: from then on the
// runtime sends new sandboxes.
func (d *daemon) installPlugin() error {
	i, err := d.newInstaller()
	if i == nil || err != nil {
		return err
	}
	if err := i.InstallPlugin(); err != nil {
		return err
	}
	return i.InstallConfig()
}

// runAddressGC frees what former lives left, until ctx ends.
func (d *daemon) runAddressGC(ctx context.Context) {
	collectAddresses(ctx, d.networks.ReadAll, func(ctx context.Context) error {
		return d.addresses.Settle(ctx, d.usedNetworks.Keys()...)
	})
}

const (
	// inFlightWriteTimeout is after how long no write of a former life is under way any more:
	// the API server works on a request for a minute at most.
	inFlightWriteTimeout = 2 * time.Minute
	// addressGCInterval is the time between later looks at what nobody seems to use. Each
	// reads all networks that this node has had addresses of.
	addressGCInterval = 30 * time.Minute
	// defaultReleaseTimeout bounds the last writes. With the grace of requests in work, it
	// stays below the Pod's termination grace period of 30 s.
	defaultReleaseTimeout = 4 * time.Second
)

// collectAddresses settles at once; again when no write of a former life can come any
// more, with a fresh look at where this node has an entry; and then now and then, for
// what was spared because an interface had it.
func collectAddresses(ctx context.Context, reread, settle func(context.Context) error) {
	_ = cluster.RetryUntilSuccess(ctx, settle) // ends with ctx at the latest
	if !sleep(ctx, inFlightWriteTimeout) {
		return
	}
	_ = cluster.RetryUntilSuccess(ctx, reread)
	for {
		_ = cluster.RetryUntilSuccess(ctx, settle)
		if !sleep(ctx, addressGCInterval/2+rand.N(addressGCInterval)) {
			return
		}
	}
}

// sleep waits, and reports whether ctx lasted.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// releaseWarmPool frees what is kept ready, after the last request was served: a node that
// goes for long must not keep addresses from the others. What cannot be written in
// time stays in the node's entries, for the next life.
func (d *daemon) releaseWarmPool(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.releaseTimeout)
	defer cancel()
	if err := d.addresses.ReleaseWarmPool(ctx); err != nil {
		d.log.Info("Addresses stay with this node that were kept ready", "error", err.Error())
	}
}

// uninstallPlugin uninstalls when the DaemonSet was deleted. That the API server does not say
// so is no reason to fail: it may be away for longer than this daemon.
func (d *daemon) uninstallPlugin(ctx context.Context) error {
	i, err := d.newInstaller()
	if i == nil || err != nil {
		return err
	}
	outcome, err := i.CleanUp(context.WithoutCancel(ctx))
	d.log.Info("Leaving", "installation", outcome)
	if errors.Is(err, install.ErrUninstallUnknown) {
		d.log.Info("The installation stays as it is", "error", err.Error())
		return nil
	}
	if err == nil && outcome == install.Removed { // with Pods on them, networks stay guarded
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(d.firewall.Remove(), d.sourceGuard.Remove(ctx), d.kernel.RemoveTagFilters(ctx))
	}
	if err != nil {
		return fmt.Errorf("leave the node: %w", err)
	}
	return nil
}

// newInstaller is for this daemon's flags; nil with --install=false.
func (d *daemon) newInstaller() (*install.Installer, error) {
	if !d.install {
		return nil, nil
	}
	config, err := install.Conflist(install.Settings{
		CNIVersion: d.cniVersion, NamingScheme: d.namingScheme, CNIDir: d.cniConf, Socket: d.socket,
	})
	if err != nil {
		return nil, err
	}
	return &install.Installer{
		PluginSource: d.plugin, BinDir: d.cniBin, ConfDir: d.cniConf, Config: config,
		DaemonSetGone:     func(ctx context.Context) (bool, error) { return d.conn.DaemonSetDeleted(ctx, d.namespace, d.daemonSet) },
		SandboxesAttached: d.hasSandboxes,
	}, nil
}

// hasSandboxes reports whether sandboxes are attached.
func (d *daemon) hasSandboxes() (bool, error) {
	records, err := d.journal.List()
	for _, rec := range records {
		if rec.State != attach.Released {
			return true, err
		}
	}
	return false, err
}
