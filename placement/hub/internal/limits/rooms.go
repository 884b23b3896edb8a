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
)

// Rooms has the room that clusters report, and the replicas that the reports do not contain yet: those are assumed to
// take room. Two objects that are decided at once thus never get the same room.
type Rooms struct {
	now func() time.Time

	mu       sync.Mutex
	clusters map[string]*clusterRoom
	waiting  map[kinds.Key]bool
	queue    Queue // nil before the controller runs
}

// clusterRoom is the room of one cluster.
type clusterRoom struct {
	// reported is false while the agent reports no room, because it is of an earlier version, or its admin wants that.
	reported bool
	free     room.Histogram
	objects  map[kinds.Key]*assumption
	// left is free without what is assumed. It is in force until expires; a zero time: compute it.
	left    room.Histogram
	expires time.Time
}

// assumption is what the hub requests of a cluster for one object.
type assumption struct {
	requests room.Requests
	reserved int64
	// existing replicas are reported by the object's Work, since a time. Contained are those that the room is without.
	existing, contained int64
	since               time.Time // when existing or reserved grew
}

// newRooms returns Rooms without reports.
func newRooms(now func() time.Time) *Rooms {
	return &Rooms{now: now, clusters: map[string]*clusterRoom{}, waiting: map[kinds.Key]bool{}}
}

// SetQueue sets the queue that objects are added to that wait for room.
func (r *Rooms) SetQueue(q Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = q
}

// Observe reads the room that a Cluster reports. It queues the objects that wait for room if it has changed.
func (r *Rooms) Observe(c *v1alpha1.Cluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of, free := r.cluster(c.Name), room.FromAPI(c.Status.Room)
	if reported := c.Status.Room != nil; of.reported == reported && slices.Equal(of.free, free) {
		return // another field has changed
	}
	of.reported, of.free, of.expires = c.Status.Room != nil, free, time.Time{}
	for _, a := range of.objects {
		a.contained = max(a.contained, min(a.existing, a.reserved))
	}
	for key := range r.waiting {
		delete(r.waiting, key)
		if r.queue != nil {
			r.queue.Add(key)
		}
	}
}

// Forget drops the report of a Cluster that was deleted.
func (r *Rooms) Forget(c *v1alpha1.Cluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.cluster(c.Name)
	of.reported, of.free, of.expires = false, nil, time.Time{}
	r.dropEmpty(c.Name)
}

func (r *Rooms) cluster(name string) *clusterRoom {
	c := r.clusters[name]
	if c == nil {
		c = &clusterRoom{objects: map[kinds.Key]*assumption{}}
		r.clusters[name] = c
	}
	return c
}

func (r *Rooms) dropEmpty(name string) {
	if c := r.clusters[name]; c != nil && !c.reported && len(c.objects) == 0 {
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

// update computes what is left, unless that is still in force.
func (c *clusterRoom) update(now time.Time) {
	if now.Before(c.expires) {
		return
	}
	assumed := map[room.Requests]int64{}
	c.expires = now.Add(assumeAtMost)
	for _, a := range c.objects {
		age := now.Sub(a.since)
		if age >= roomReportDelay {
			a.contained = max(a.contained, min(a.existing, a.reserved))
		}
		if age >= assumeAtMost {
			a.contained = a.reserved
		}
		if n := a.reserved - a.contained; n > 0 {
			assumed[a.requests] += n
			for _, after := range []time.Duration{roomReportDelay, assumeAtMost} {
				if at := a.since.Add(after); at.After(now) && at.Before(c.expires) {
					c.expires = at
				}
			}
		}
	}
	c.left = c.free
	for _, r := range slices.SortedFunc(maps.Keys(assumed), room.Requests.Compare) { // the largest first
		c.left = c.left.Place(r, assumed[r])
	}
}

// reserve records what the hub requests of a cluster for an object. Existing is how many of the replicas exist;
// negative: it is not reported. Restored is true when a new leader reads it: the room is without those that exist.
func (r *Rooms) reserve(key kinds.Key, cluster string, per Usage, reserved, existing int64, restored bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if key.Group == "batch" { // the Pods of a Job do not all run at a time
		return
	}
	now, c := r.now(), r.cluster(cluster)
	a := c.objects[key]
	switch {
	case reserved <= 0 || per.Replicas == 0:
		if a != nil {
			delete(c.objects, key)
			c.expires = time.Time{}
		}
		r.dropEmpty(cluster)
		return
	case a == nil:
		a = &assumption{since: now}
		c.objects[key] = a
	}
	before := *a
	a.set(requestsOf(per), reserved, existing, now)
	if restored {
		a.contained = min(a.existing, reserved)
	}
	if *a != before {
		c.expires = time.Time{}
	}
}

// set records what is requested and exists now.
func (a *assumption) set(requests room.Requests, reserved, existing int64, now time.Time) {
	if existing < 0 {
		existing = a.existing
	}
	if reserved > a.reserved || existing != a.existing {
		a.since = now
	}
	if existing < a.existing { // they are about to come again
		a.contained = min(a.contained, existing)
	}
	a.requests, a.reserved, a.existing, a.contained = requests, reserved, existing, min(a.contained, reserved)
}

// await sets whether an object waits for room.
func (r *Rooms) await(key kinds.Key, waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if waits {
		r.waiting[key] = true
		return
	}
	delete(r.waiting, key)
}
