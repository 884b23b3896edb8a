// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/addresses"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/delegate"
	"github.com/patchbay-cni/patchbay/daemon/internal/metrics"
	"github.com/patchbay-cni/patchbay/daemon/internal/networkcache"
	"github.com/patchbay-cni/patchbay/daemon/internal/nodestate"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// linkKubeClient implements netwatcher.KubeClient with the caches.
type linkKubeClient struct {
	networks    *networkcache.Cache
	attachments *networkcache.Attachments
	nodes       *nodestate.NodeNetworks
}

var _ netwatcher.KubeClient = linkKubeClient{}

// Networks implements netwatcher.KubeClient.
func (c linkKubeClient) Networks(context.Context) ([]*network.Network, error) {
	if !c.networks.Ready() {
		return nil, fmt.Errorf("list networks: %w: the cache is not filled yet", attach.ErrTryAgain)
	}
	attachments, err := c.attachments.List()
	if err != nil && !errors.Is(err, netwatcher.ErrNetworksIncomplete) {
		return nil, err
	}
	return append(c.networks.List(), attachments...), err
}

// NodeNetworks implements netwatcher.KubeClient.
func (c linkKubeClient) NodeNetworks(ctx context.Context) ([]v1.NodeNetwork, error) {
	return c.nodes.List(ctx)
}

// WriteStatus implements netwatcher.KubeClient.
func (c linkKubeClient) WriteStatus(ctx context.Context, status v1.NodeNetworkStatus) error {
	return c.nodes.WriteStatus(ctx, status)
}

// configurationChecker implements netwatcher.DelegateChecker with the node's files and the cache of networks.
type configurationChecker struct {
	delegate.Checker

	networks *networkcache.Cache
	// installed reports whether the daemon has installed Patchbay's configuration.
	installed func() bool
}

var _ netwatcher.DelegateChecker = configurationChecker{}

// CheckOwnFirst implements netwatcher.DelegateChecker. Until the configuration is installed it finds no fault.
func (c configurationChecker) CheckOwnFirst() error {
	if !c.installed() {
		return nil
	}
	return c.Checker.CheckOwnFirst()
}

// DefaultNetwork implements netwatcher.DelegateChecker.
func (c configurationChecker) DefaultNetwork() (*network.Network, error) {
	return c.networks.DefaultNetwork()
}

// podLinks implements netwatcher.PodLinks with the journal.
type podLinks struct {
	journal attach.Journal
}

// Links implements netwatcher.PodLinks.
func (p podLinks) Links() (map[network.Link]bool, error) {
	records, err := p.journal.List()
	if err != nil {
		return nil, err
	}
	links := map[network.Link]bool{}
	for _, rec := range records {
		if rec.State == attach.Released {
			continue
		}
		for i := range rec.Interfaces {
			n := &rec.Interfaces[i].Network
			id, ok := n.Link()
			tagged := id.IsNIC() && (n.Trunk || n.Delegates())
			if ok && !tagged {
				links[id] = true
			}
		}
	}
	return links, nil
}

// linkJournal is a Journal that calls detached after a record stops using its host links.
type linkJournal struct {
	attach.Journal
	detached func()
}

// Put implements attach.Journal.
func (j linkJournal) Put(rec *attach.Record) error {
	err := j.Journal.Put(rec)
	if err == nil && rec.State == attach.Released {
		j.detached()
	}
	return err
}

// Delete implements attach.Journal.
func (j linkJournal) Delete(containerID, ifName string) error {
	err := j.Journal.Delete(containerID, ifName)
	if err == nil {
		j.detached()
	}
	return err
}

// linkObserver implements netwatcher.Observer with metrics and Events.
type linkObserver struct {
	*metrics.LinkMetrics
	recordEvent func(netwatcher.LinkEvent)
}

// RecordEvent implements netwatcher.Observer.
func (o linkObserver) RecordEvent(e netwatcher.LinkEvent) { o.recordEvent(e) }

// failureForgetter is a networkcache.Observer that also removes the metrics of deleted networks.
type failureForgetter struct {
	networkcache.Observer
	metrics *metrics.FailureMetrics
}

// NetworkDeleted implements networkcache.Observer.
func (f failureForgetter) NetworkDeleted(key network.Key) {
	f.Observer.NetworkDeleted(key)
	f.metrics.Forget(key.Ref)
}

// recoveryTrigger implements networkcache.Observer with the allocator, and triggers the DanmEp
// garbage collection when a recovery begins.
type recoveryTrigger struct {
	*addresses.DeferredAllocator
	// started receives a value when a recovery has begun. Its buffer has one element.
	started chan struct{}
}

var _ networkcache.Observer = recoveryTrigger{}

// ReportToRecovery implements networkcache.Observer. The node can only report to the recovery when the
// DanmEps are deleted that the older state has brought back.
func (t recoveryTrigger) ReportToRecovery(key network.Key) {
	t.DeferredAllocator.ReportToRecovery(key)
	select {
	case t.started <- struct{}{}:
	default: // a collection is triggered already
	}
}
