// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/netip"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/daemon/cluster"
	"github.com/patchbay-cni/patchbay/daemon/kernel"
	"github.com/patchbay-cni/patchbay/daemon/metrics"
	"github.com/patchbay-cni/patchbay/netwatcher"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
	"github.com/patchbay-cni/patchbay/version"
)

// podLinks tells netwatcher which host links Pods are on, from the journal.
type podLinks struct {
	journal attach.Journal
}

// Links implements netwatcher.Pods.
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

// linkJournal tells of records whose Pods have left their links.
type linkJournal struct {
	attach.Journal
	released func()
}

// Put implements attach.Journal.
func (j linkJournal) Put(rec *attach.Record) error {
	err := j.Journal.Put(rec)
	if err == nil && rec.State == attach.Released {
		j.released()
	}
	return err
}

// Delete implements attach.Journal.
func (j linkJournal) Delete(containerID, ifName string) error {
	err := j.Journal.Delete(containerID, ifName)
	if err == nil {
		j.released()
	}
	return err
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

// linkObserver measures what netwatcher does, and makes Events of its news.
type linkObserver struct {
	*metrics.Links
	news func(netwatcher.News)
}

// News implements netwatcher.Observer.
func (o linkObserver) News(n netwatcher.News) { o.news(n) }

// reserved are the nodes' own addresses in a network's subnets: no Pod gets one.
func (d *daemon) reserved(ctx context.Context) func(*network.Network) []netip.Addr {
	return func(n *network.Network) []netip.Addr { return objects.Reserved(n, d.nodes.NICs(ctx)) }
}
