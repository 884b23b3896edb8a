// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/cluster"
	"github.com/patchbay-cni/patchbay/daemon/internal/metrics"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/netwatcher"
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

// linkObserver measures what netwatcher does, and makes Events of its news.
type linkObserver struct {
	*metrics.LinkMetrics
	recordEvent func(netwatcher.LinkEvent)
}

// RecordEvent implements netwatcher.Observer.
func (o linkObserver) RecordEvent(n netwatcher.LinkEvent) { o.recordEvent(n) }

// recoveryTrigger is where the watch of networks says what it sees.
type recoveryTrigger struct {
	*cluster.DeferredAllocator
	daemon *daemon
}

// Reassert has this node report to a recovery. It cannot before DanmEps are gone that
// an older state brought back, so these are looked for at once.
func (m recoveryTrigger) Reassert(key claims.Key) {
	m.DeferredAllocator.Reassert(key)
	select {
	case m.daemon.recoveryStarted <- struct{}{}:
	default: // a look is due already
	}
}
