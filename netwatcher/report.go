// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// The size of a node's object grows with its links, delegates and virtual functions, and the API server sends each write to
// every node and to the controller. Changes that follow each other are therefore written together.
const (
	// minWriteInterval is the least time between two writes that change no NIC's addresses.
	minWriteInterval = time.Second
	// writeIntervalPerRow is added for each link, delegate and virtual function.
	writeIntervalPerRow = 10 * time.Millisecond
)

// statusReporter writes the node's status and reports its changes to the Observer. It is safe for
// concurrent use.
type statusReporter struct {
	*Config
	// trigger asks for a reconciliation, which writes a deferred status.
	trigger func()

	mu sync.Mutex // guards what follows
	// written is the status that was written last, at writtenAt.
	written   *v1.NodeNetworkStatus
	writtenAt time.Time
	// observed is the status of the last reconciliation.
	observed *v1.NodeNetworkStatus
	// timer triggers the reconciliation that writes a deferred status.
	timer *time.Timer
	// refusedVTEPs are the VTEPs that the last reconciliation ignored.
	refusedVTEPs VTEPs
}

// report reports what got better or worse to the Observer, and writes the status if it differs from
// the last one written. It writes at once if the object is missing or addresses changed, which the
// other nodes need; otherwise it defers the write to some time after the last one.
func (p *statusReporter) report(ctx context.Context, exists bool, status *v1.NodeNetworkStatus, changes []Change) error {
	if !p.observe(exists, status, changes) {
		return nil
	}
	if err := p.KubeClient.WriteStatus(ctx, *status); err != nil {
		return fmt.Errorf("write NodeNetwork %s: %w", p.Node, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written, p.writtenAt = status, time.Now()
	return nil
}

// observe records the Events of the status, and reports whether to write it now.
func (p *statusReporter) observe(exists bool, status *v1.NodeNetworkStatus, changes []Change) (write bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.observed
	p.observed = status
	if p.Observer != nil {
		for _, e := range linkEvents(before, status, changes) {
			p.Observer.RecordEvent(e)
		}
	}
	if !exists || p.written == nil {
		return true
	}
	if reflect.DeepEqual(p.written, status) {
		return false
	}
	if !SameVTEPs(p.written.NICs, status.NICs) {
		return true
	}
	rows := len(status.Links) + len(status.Delegates)
	for i := range status.NICs {
		if functions := status.NICs[i].SRIOV; functions != nil {
			rows += len(functions.Functions)
		}
	}
	wait := time.Until(p.writtenAt.Add(minWriteInterval + time.Duration(rows)*writeIntervalPerRow))
	switch {
	case wait <= 0:
		return true
	case p.timer == nil:
		p.timer = time.AfterFunc(wait, p.trigger)
	default:
		p.timer.Reset(wait)
	}
	return false
}

// waiting reports whether a change of a link waits until no Pod is on it.
func (p *statusReporter) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.observed != nil && slices.ContainsFunc(p.observed.Links, func(l v1.HostLink) bool { return l.State == v1.LinkChangePending })
}

// logRefusedVTEPs logs the VTEPs that were ignored, if they differ from the last ones.
func (p *statusReporter) logRefusedVTEPs(refused VTEPs) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(refused) > 0 && !maps.EqualFunc(refused, p.refusedVTEPs, slices.Equal) {
		p.Log.Info("Ignored VTEPs that are neither in this node's subnets nor in --vtep-ranges", "vteps", refused)
	}
	p.refusedVTEPs = refused
}
