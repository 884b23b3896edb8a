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

	"github.com/patchbay-cni/patchbay/daemon/attach"
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
