// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// What a node's object costs grows with its links, and every node and the
// controller are sent each write: rows that change one after the other are written
// together.
const (
	// pace is the least time between two writes that change no NIC's addresses.
	pace = time.Second
	// pacePerLink is added for each.
	pacePerLink = 10 * time.Millisecond
)

// written is what was written last.
type written struct {
	status *v1.NodeNetworkStatus
	at     time.Time
	// told is what News compared last.
	told *v1.NodeNetworkStatus
	// later wakes the round that writes what was held back.
	later *time.Timer
}

// report tells the Observer what is new, and writes the status when it differs from
// what was written last; at once when the object is missing or addresses changed,
// which the other nodes need, else a while after the last write.
func (r *Reconciler) report(ctx context.Context, exists bool, status *v1.NodeNetworkStatus, changes []Change) error {
	r.mu.Lock()
	last := r.wrote.status
	r.tell(status, changes)
	same := exists && last != nil && reflect.DeepEqual(last, status)
	hold := time.Duration(0)
	if exists && last != nil && SameVTEPs(last.NICs, status.NICs) {
		hold = time.Until(r.wrote.at.Add(pace + time.Duration(len(status.Links))*pacePerLink))
	}
	if !same && hold > 0 {
		r.wakeLater(hold)
	}
	r.mu.Unlock()
	if same || hold > 0 {
		return nil
	}
	if err := r.Cluster.WriteStatus(ctx, *status); err != nil {
		return fmt.Errorf("write NodeNetwork %s: %w", r.Node, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrote.status, r.wrote.at = status, time.Now()
	return nil
}

// tell passes on what got better or worse; the lock is held.
func (r *Reconciler) tell(status *v1.NodeNetworkStatus, changes []Change) {
	before := r.wrote.told
	r.wrote.told = status
	if r.Observer == nil {
		return
	}
	for _, n := range newsOf(before, status, changes) {
		r.Observer.News(n)
	}
}

// wakeLater asks for a round; the lock is held.
func (r *Reconciler) wakeLater(after time.Duration) {
	if r.wrote.later == nil {
		r.wrote.later = time.AfterFunc(after, r.Trigger)
		return
	}
	r.wrote.later.Reset(after)
}

// Released is to be called when a Pod has left its links: one that waits for that can
// be changed or removed now. It does not wait, and costs nothing while none does.
func (r *Reconciler) Released() {
	r.mu.Lock()
	told := r.wrote.told
	r.mu.Unlock()
	if told != nil && slices.ContainsFunc(told.Links, func(l v1.HostLink) bool { return l.State == v1.LinkKept }) {
		r.Trigger()
	}
}
