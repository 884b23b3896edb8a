// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"time"

	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/internal/room"
)

// wakeInterval is at most how often an object is queued because a cluster has room: many may wait for a little.
const wakeInterval = 10 * time.Second

// DelayingQueue is the work queue of the objects.
type DelayingQueue interface {
	AddAfter(kinds.Key, time.Duration)
}

// AwaitedRoom is the room that an object waits for.
type AwaitedRoom struct {
	// PerReplica is the usage of one replica.
	PerReplica Usage
	// Replicas is for how many a cluster must have room: for one where the clusters share them.
	Replicas int64
	// Clusters are those that would take them. The object does not wait if there are none.
	Clusters []string
}

// waiter is an object that waits for room.
type waiter struct {
	requests room.Requests
	replicas int64
	clusters []string
	// queueAt is the earliest time at which the object is queued.
	queueAt time.Time
}

// SetQueue sets the queue that objects are added to that wait for room.
func (r *Rooms) SetQueue(q DelayingQueue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = q
}

// await sets the room that an object waits for. A cluster that has it now, and that the plan did not use, is limited by
// something else, which its room does not change.
func (r *Rooms) await(key kinds.Key, of AwaitedRoom) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := &waiter{requests: requestsOf(of.PerReplica), replicas: max(1, of.Replicas)}
	if before := r.waiting[key]; before != nil {
		next.queueAt = before.queueAt
		r.leave(key, before)
		delete(r.waiting, key)
	}
	if len(of.Clusters) == 0 || of.PerReplica.Replicas == 0 || key.Group == "batch" {
		return
	}
	r.waiting[key] = next
	for _, name := range of.Clusters {
		c := r.clusters[name]
		if c == nil || !c.reported {
			continue
		}
		if c.update(r.now()); c.left.Fit(next.requests) < next.replicas {
			c.waiting[key], next.clusters = next, append(next.clusters, name)
		}
	}
}

// leave takes an object from the clusters whose room it waits for.
func (r *Rooms) leave(key kinds.Key, w *waiter) {
	for _, name := range w.clusters {
		if c := r.clusters[name]; c != nil {
			delete(c.waiting, key)
			r.dropEmpty(name)
		}
	}
	w.clusters = nil
}

// wake queues the objects that a cluster has room for, or that it no longer limits.
func (r *Rooms) wake(c *clusterRoom) {
	if r.queue == nil || len(c.waiting) == 0 {
		return
	}
	now, fits := r.now(), map[room.Requests]int64{}
	c.update(now)
	for key, w := range c.waiting {
		n, ok := fits[w.requests]
		if !ok {
			n = c.left.Fit(w.requests)
			fits[w.requests] = n
		}
		if c.reported && n < w.replicas {
			continue
		}
		r.leave(key, w)
		at := later(now, w.queueAt)
		w.queueAt = at.Add(wakeInterval)
		r.queue.AddAfter(key, at.Sub(now))
	}
}
