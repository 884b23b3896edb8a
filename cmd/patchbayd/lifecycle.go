// SPDX-License-Identifier: Apache-2.0

package main

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

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/daemon/cluster"
	"github.com/patchbay-cni/patchbay/daemon/install"
	"github.com/patchbay-cni/patchbay/daemon/journal"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
	"github.com/patchbay-cni/patchbay/securemetrics"
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

// serveHTTP serves health checks until ctx ends.
func (d *daemon) serveHTTP(ctx context.Context) error {
	l, err := net.Listen("tcp", d.http)
	if err != nil {
		return fmt.Errorf("listen for health checks on %s: %w", d.http, err)
	}
	s := &http.Server{Handler: d.handler(), ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health checks: %w", err)
	}
	return nil
}

// handler answers /healthz (the process works) and /readyz (Pods can be attached).
func (d *daemon) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !d.ready.Load() {
			http.Error(w, d.unready(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return mux
}

// unready says why Pods cannot be attached.
func (d *daemon) unready() string {
	if err := d.addresses.Err(); err != nil {
		return err.Error()
	}
	return "the plugin is being put in place"
}

// serveMetrics serves metrics to clients that may read them, until ctx ends.
func (d *daemon) serveMetrics(ctx context.Context) error {
	s, err := securemetrics.Listen(d.scrapes, d.config, d.metrics.Gatherer(), d.log)
	if err != nil {
		return err
	}
	return s.Start(ctx)
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

// openAddresses starts the node's allocator from the journal. With a damaged journal
// it reports false: to go on without a record would free addresses that are in use,
// and to stop would keep the Pods that are to end from their DEL.
func (d *daemon) openAddresses(ctx context.Context) (opened bool, err error) {
	f, err := d.former()
	if errors.Is(err, journal.ErrCorrupt) {
		err = d.howToMend(err)
		d.log.Error(err, "No Pod can be attached")
		d.addresses.Refuse(err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	allocator := claims.New(d.metrics.Store(objects.NewStore(d.conn.Direct)), d.claims(ctx, f.life))
	uses := cluster.Uses(f.records)
	allocator.Resume(uses, f.seqs)
	d.holdings.Add(uses, f.seqs)
	d.addresses.Open(allocator)
	return true, nil
}

// former counts this life and reads the sandboxes of the former ones, and the seqs
// that this Node's entries had.
func (d *daemon) former() (f former, err error) {
	if f.life, err = d.journal.NextLife(); err != nil {
		return f, err
	}
	if f.records, err = d.journal.List(); err != nil {
		return f, fmt.Errorf("read the addresses in use from the journal: %w", err)
	}
	host, _ := d.own.Host()
	if f.seqs, err = d.journal.Seqs(host.UID); err != nil {
		return f, fmt.Errorf("read what this node had of networks from the journal: %w", err)
	}
	return f, nil
}

// former is what the journal has of former lives.
type former struct {
	life    int64
	records []*attach.Record
	seqs    map[claims.Key]int64
}

// claims is what the allocator needs to know of this node.
func (d *daemon) claims(ctx context.Context, life int64) claims.Config {
	host, _ := d.own.Host()
	return claims.Config{
		Node: host.Name, NodeUID: host.UID, Life: life,
		Reserved: d.reserved(ctx),
		Nodes:    func() int { return d.nodes.Nodes(ctx) },
		Usable:   d.own.Usable,
		Gone:     d.own.Gone,
		Live:     (&liveAddresses{read: d.kernel.LiveAddresses}).get,
		Remember: func(key claims.Key, seq int64) error { return d.journal.RememberSeq(host.UID, key, seq) },
		Observe:  d.metrics.Claim,
		Hold:     orNone(d.hold), Cool: orNone(d.cool),
		Report: func(err error) { d.log.Error(err, "Addresses are not as they were left") },
	}
}

// orNone turns a flag's 0, which is none, into what claims takes for none.
func orNone[N int | time.Duration](n N) N {
	if n == 0 {
		return -1
	}
	return n
}

// reserved are the nodes' own addresses in a network's subnets: no Pod gets one.
func (d *daemon) reserved(ctx context.Context) func(*network.Network) []netip.Addr {
	return func(n *network.Network) []netip.Addr { return objects.Reserved(n, d.nodes.NICs(ctx)) }
}

// putInPlace installs the plugin and then its configuration: from then on the
// runtime sends new sandboxes.
func (d *daemon) putInPlace() error {
	i, err := d.installer()
	if i == nil || err != nil {
		return err
	}
	if err := i.InstallPlugin(); err != nil {
		return err
	}
	return i.InstallConfig()
}

// settle frees what former lives left, until ctx ends.
func (d *daemon) settle(ctx context.Context) {
	settleNowAndThen(ctx, d.networks.Reread, func(ctx context.Context) error {
		return d.addresses.Settle(ctx, d.holdings.Keys()...)
	})
}

const (
	// lateWrites is after how long no write of a former life is under way any more:
	// the API server works on a request for a minute at most.
	lateWrites = 2 * time.Minute
	// settleEvery is the time between later looks at what nobody seems to use. Each
	// reads all networks that this node has had addresses of.
	settleEvery = 30 * time.Minute
	// giveBackPatience bounds the last writes. With the grace of requests in work, it
	// stays below the Pod's termination grace period of 30 s.
	giveBackPatience = 4 * time.Second
)

// settleNowAndThen settles at once; again when no write of a former life can come any
// more, with a fresh look at where this node has an entry; and then now and then, for
// what was spared because an interface had it.
func settleNowAndThen(ctx context.Context, reread, settle func(context.Context) error) {
	_ = cluster.Persist(ctx, settle) // ends with ctx at the latest
	if !sleep(ctx, lateWrites) {
		return
	}
	_ = cluster.Persist(ctx, reread)
	for {
		_ = cluster.Persist(ctx, settle)
		if !sleep(ctx, settleEvery/2+rand.N(settleEvery)) {
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

// giveBack frees what is kept ready, after the last request was served: a node that
// goes for long must not keep addresses from the others. What cannot be written in
// time stays in the node's entries, for the next life.
func (d *daemon) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.lastWrites)
	defer cancel()
	if err := d.addresses.GiveBack(ctx); err != nil {
		d.log.Info("Addresses stay with this node that were kept ready", "error", err.Error())
	}
}

// leave uninstalls when the DaemonSet was deleted. That the API server does not say
// so is no reason to fail: it may be away for longer than this daemon.
func (d *daemon) leave(ctx context.Context) error {
	i, err := d.installer()
	if i == nil || err != nil {
		return err
	}
	outcome, err := i.Leave(context.WithoutCancel(ctx))
	d.log.Info("Leaving", "installation", outcome)
	if errors.Is(err, install.ErrUnknown) {
		d.log.Info("The installation stays as it is", "error", err.Error())
		return nil
	}
	if err == nil && outcome == install.Removed { // with Pods on them, networks stay guarded
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(d.firewall.Remove(), d.guard.Remove(ctx), d.kernel.RemoveTagFilters(ctx))
	}
	if err != nil {
		return fmt.Errorf("leave the node: %w", err)
	}
	return nil
}

// installer is for this daemon's flags; nil with --install=false.
func (d *daemon) installer() (*install.Installer, error) {
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
		Source: d.plugin, BinDir: d.cniBin, ConfDir: d.cniConf, Config: config,
		Gone: func(ctx context.Context) (bool, error) { return d.conn.BeingRemoved(ctx, d.namespace, d.daemonSet) },
		Busy: d.busy,
	}, nil
}

// busy reports whether sandboxes are attached.
func (d *daemon) busy() (bool, error) {
	records, err := d.journal.List()
	for _, rec := range records {
		if rec.State != attach.Released {
			return true, err
		}
	}
	return false, err
}
