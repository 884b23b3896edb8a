// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// What a node's object costs grows with its links, and every node and the
// controller are sent each write: rows that change one after the other are written
// together.
const (
	// minWriteInterval is the least time between two writes that change no NIC's addresses.
	minWriteInterval = time.Second
	// writeIntervalPerLink is added for each.
	writeIntervalPerLink = 10 * time.Millisecond
)

// reportState is what was written last.
type reportState struct {
	written   *v1.NodeNetworkStatus
	writtenAt time.Time
	// observed is what News compared last.
	observed *v1.NodeNetworkStatus
	// timer wakes the round that writes what was held back.
	timer *time.Timer
}

// report tells the Observer what is new, and writes the status when it differs from
// what was written last; at once when the object is missing or addresses changed,
// which the other nodes need, else a while after the last write.
func (r *Reconciler) report(ctx context.Context, exists bool, status *v1.NodeNetworkStatus, changes []Change) error {
	r.mu.Lock()
	last := r.reported.written
	r.recordEvents(status, changes)
	same := exists && last != nil && reflect.DeepEqual(last, status)
	hold := time.Duration(0)
	if exists && last != nil && SameVTEPs(last.NICs, status.NICs) {
		hold = time.Until(r.reported.writtenAt.Add(minWriteInterval + time.Duration(len(status.Links))*writeIntervalPerLink))
	}
	if !same && hold > 0 {
		r.triggerAfter(hold)
	}
	r.mu.Unlock()
	if same || hold > 0 {
		return nil
	}
	if err := r.KubeClient.WriteStatus(ctx, *status); err != nil {
		return fmt.Errorf("write NodeNetwork %s: %w", r.Node, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reported.written, r.reported.writtenAt = status, time.Now()
	return nil
}

// recordEvents passes on what got better or worse; the lock is held.
func (r *Reconciler) recordEvents(status *v1.NodeNetworkStatus, changes []Change) {
	before := r.reported.observed
	r.reported.observed = status
	if r.Observer == nil {
		return
	}
	for _, n := range linkEvents(before, status, changes) {
		r.Observer.RecordEvent(n)
	}
}

// triggerAfter asks for a round; the lock is held.
func (r *Reconciler) triggerAfter(after time.Duration) {
	if r.reported.timer == nil {
		r.reported.timer = time.AfterFunc(after, r.Trigger)
		return
	}
	r.reported.timer.Reset(after)
}

// PodDetached is to be called when a Pod has left its links: one that waits for that can
// be changed or removed now. It does not wait, and costs nothing while none does.
func (r *Reconciler) PodDetached() {
	r.mu.Lock()
	told := r.reported.observed
	r.mu.Unlock()
	if told != nil && slices.ContainsFunc(told.Links, func(l v1.HostLink) bool { return l.State == v1.LinkChangePending }) {
		r.Trigger()
	}
}
