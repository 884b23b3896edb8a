// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/internal/room"
)

const (
	// roomReportDelay is after how long an agent has reported the room without Pods that exist: it reports small
	// changes once a minute.
	roomReportDelay = 75 * time.Second
	// assumeAtMost is how long replicas take room that do not exist: a quota may refuse them.
	assumeAtMost = 5 * time.Minute
	// expireInterval is at most how often a cluster's assumptions are walked: in a rollout one of them ends at any time.
	expireInterval = time.Second
)

// Rooms has the room that clusters report, and the replicas that the reports do not contain yet: those are assumed to
// take room. Two objects that are decided at once thus never get the same room.
type Rooms struct {
	now func() time.Time

	mu       sync.Mutex
	clusters map[string]*clusterRoom
	waiting  map[kinds.Key]*waiter
	queue    DelayingQueue // nil before the controller runs
}

// clusterRoom is the room of one cluster.
type clusterRoom struct {
	// reported is false while the agent reports no room, because it is of an earlier version, or its admin wants that.
	reported bool
	free     room.Histogram
	objects  map[kinds.Key]*assumption
	// assumed are the replicas that free contains, although the hub has requested them, and open the objects that
	// have some. They change with each object, so that a change of one does not count all.
	assumed map[room.Requests]int64
	open    map[kinds.Key]*assumption
	// expires is when the next of them is no longer assumed.
	expires time.Time
	// left is free without what is assumed; outdated: compute it.
	left     room.Histogram
	outdated bool
	// waiting are the objects to be queued when it has room for them.
	waiting map[kinds.Key]*waiter
}

// assumption is what the hub requests of a cluster for one object.
type assumption struct {
	requests room.Requests
	reserved int64
	// existing replicas are reported by the object's Work. Contained are those that the room is without.
	existing, contained int64
	since               time.Time // when reserved grew, or replicas went that may come again
	changed             time.Time // when existing or reserved grew
}

// newRooms returns Rooms without reports.
func newRooms(now func() time.Time) *Rooms {
	return &Rooms{now: now, clusters: map[string]*clusterRoom{}, waiting: map[kinds.Key]*waiter{}}
}

// Observe reads the room that a Cluster reports. It queues the objects that wait for room there, and have it now.
func (r *Rooms) Observe(c *v1alpha1.Cluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of, free := r.cluster(c.Name), room.FromAPI(c.Status.Room)
	if reported := c.Status.Room != nil; of.reported == reported && slices.Equal(of.free, free) {
		return // another field has changed
	}
	of.reported, of.free, of.outdated = c.Status.Room != nil, free, true
	for key, a := range of.open {
		of.change(key, a, func() { a.contain(a.existing) })
	}
	r.wake(of)
}

// Forget drops the report of a Cluster that was deleted.
func (r *Rooms) Forget(c *v1alpha1.Cluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.cluster(c.Name)
	of.reported, of.free, of.outdated = false, nil, true
	r.dropEmpty(c.Name)
}

func (r *Rooms) cluster(name string) *clusterRoom {
	c := r.clusters[name]
	if c == nil {
		c = &clusterRoom{
			objects: map[kinds.Key]*assumption{}, assumed: map[room.Requests]int64{}, open: map[kinds.Key]*assumption{}, waiting: map[kinds.Key]*waiter{},
		}
		r.clusters[name] = c
	}
	return c
}

func (r *Rooms) dropEmpty(name string) {
	if c := r.clusters[name]; c != nil && !c.reported && len(c.objects) == 0 && len(c.waiting) == 0 {
		delete(r.clusters, name)
	}
}

// fit returns how many more replicas with these requests a cluster has room for, and what it lacks for one more; known
// is false if it reports no room.
func (r *Rooms) fit(cluster string, per Usage) (n int64, lacks string, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clusters[cluster]
	if c == nil || !c.reported {
		return 0, "", false
	}
	c.update(r.now())
	requests := requestsOf(per)
	n = c.left.Fit(requests)
	return n, c.left.Place(requests, n).Lacks(requests), true
}

func requestsOf(per Usage) room.Requests {
	return room.Requests{MilliCPU: max(0, per.MilliCPU), Memory: max(0, per.Memory)}
}

// update ends what is assumed for too long, and computes what is left.
func (c *clusterRoom) update(now time.Time) {
	if len(c.open) > 0 && !now.Before(c.expires) {
		c.expires = now.Add(assumeAtMost)
		for key, a := range c.open {
			c.change(key, a, func() { a.expire(now) })
		}
		c.expires = later(c.expires, now.Add(expireInterval))
	}
	if !c.outdated {
		return
	}
	c.left, c.outdated = c.free, false
	for _, r := range slices.SortedFunc(maps.Keys(c.assumed), room.Requests.Compare) { // the largest first
		c.left = c.left.Place(r, c.assumed[r])
	}
}

// change changes the assumption of one object, and what is assumed by as much.
func (c *clusterRoom) change(key kinds.Key, a *assumption, do func()) {
	before := *a
	do()
	if n := before.reserved - before.contained; n > 0 {
		if c.assumed[before.requests] -= n; c.assumed[before.requests] == 0 {
			delete(c.assumed, before.requests)
		}
	}
	n := a.reserved - a.contained
	if n > 0 {
		c.assumed[a.requests] += n
		c.open[key] = a
		if at := a.expires(); at.Before(c.expires) {
			c.expires = at
		}
	} else {
		delete(c.open, key)
	}
	c.outdated = c.outdated || n != before.reserved-before.contained || a.requests != before.requests
}

// contain records that the room is without so many replicas.
func (a *assumption) contain(n int64) { a.contained = max(a.contained, min(n, a.reserved)) }

// expire ends what is assumed for too long.
func (a *assumption) expire(now time.Time) {
	if !now.Before(a.changed.Add(roomReportDelay)) {
		a.contain(a.existing)
	}
	if !now.Before(a.endsAt()) {
		a.contain(a.reserved)
	}
}

// endsAt returns when nothing is assumed any more. Those that have just come are not in a report yet.
func (a *assumption) endsAt() time.Time {
	return later(a.since.Add(assumeAtMost), a.changed.Add(roomReportDelay))
}

// expires returns when the assumption ends, or that for the replicas that exist.
func (a *assumption) expires() time.Time {
	if a.contained < min(a.existing, a.reserved) {
		return a.changed.Add(roomReportDelay)
	}
	return a.endsAt()
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// reserve records what the hub requests of a cluster for an object. Existing is how many of the replicas exist;
// negative: it is not reported. Restored is true when a new leader reads it: the room is without those that exist.
func (r *Rooms) reserve(key kinds.Key, cluster string, per Usage, reserved, existing int64, restored bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if key.Group == "batch" { // the Pods of a Job do not all run at a time
		return
	}
	c := r.cluster(cluster)
	a := c.objects[key]
	if reserved <= 0 || per.Replicas == 0 {
		if a != nil {
			c.change(key, a, func() { a.reserved, a.contained = 0, 0 })
			delete(c.objects, key)
		}
		r.dropEmpty(cluster)
		return
	}
	if a == nil {
		a = &assumption{}
		c.objects[key] = a
	}
	c.change(key, a, func() {
		a.set(requestsOf(per), reserved, existing, r.now())
		if restored {
			a.contained = min(a.existing, reserved)
		}
	})
}

// set records what is requested and exists now. Replicas that go are about to come again: they, and those that have not
// come yet, are assumed for the whole time then.
func (a *assumption) set(requests room.Requests, reserved, existing int64, now time.Time) {
	if existing < 0 {
		existing = a.existing
	}
	most := min(a.reserved, reserved)
	gone := min(a.existing, most) - min(existing, most)
	if reserved > a.reserved || gone > 0 {
		a.since = now
	}
	if reserved > a.reserved || gone < 0 {
		a.changed = now
	}
	a.contained = max(0, min(a.contained, reserved)-max(0, gone))
	a.requests, a.reserved, a.existing = requests, reserved, existing
}
