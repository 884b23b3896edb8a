// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// Usage is what objects use of one cluster, or what one replica uses.
type Usage struct {
	// Objects and Replicas are counts.
	Objects, Replicas int64
	// MilliCPU is in thousandths of a CPU.
	MilliCPU int64
	// Memory is in bytes.
	Memory int64
}

// PerReplica returns the usage of one replica whose Pod has these requests.
func PerReplica(requests corev1.ResourceList) Usage {
	return Usage{Replicas: 1, MilliCPU: requests.Cpu().MilliValue(), Memory: requests.Memory().Value()}
}

func (u *Usage) add(o Usage, times int64) {
	u.Objects += o.Objects * times
	u.Replicas += o.Replicas * times
	u.MilliCPU += o.MilliCPU * times
	u.Memory += o.Memory * times
}

// Reservation is what one object uses.
type Reservation struct {
	// PerReplica is the usage of one replica; it is zero for kinds without replicas.
	PerReplica Usage
	// Replicas by cluster. A cluster that has the object is in it, also with 0 replicas.
	Replicas map[string]int64
	// Existing are the replicas that exist, by cluster. A cluster that does not report them is not in it.
	Existing map[string]int64
}

// ReservationOf returns the reservation of a stored Assignment. While replicas move away from a
// cluster they count there until they are gone. An object that is not divided, and moves, counts in both clusters.
func ReservationOf(a *v1alpha1.Assignment) Reservation {
	r := Reservation{Replicas: map[string]int64{}, Existing: map[string]int64{}}
	for _, c := range a.Status.Clusters {
		if c.Replicas != nil {
			r.Existing[string(c.Cluster)] = int64(c.Replicas.Total)
		}
	}
	whole := int32(0)
	for _, t := range a.Spec.Targets {
		whole = max(whole, ptr.Deref(t.Replicas, 0))
	}
	for _, t := range a.Spec.Targets {
		if t.Replicas != nil {
			r.PerReplica = PerReplica(a.Spec.Decision.Requests)
		}
		n := max(ptr.Deref(t.Replicas, 0), ptr.Deref(t.RequestedReplicas, 0))
		if t.Replicas != nil && t.RequestedReplicas == nil && t.State != v1alpha1.TargetActive {
			n = whole
		}
		r.Replicas[string(t.Cluster)] = int64(n)
	}
	return r
}

// Capacity counts the usage of each cluster by all objects, so that two objects never get the
// same room.
type Capacity struct {
	mu           sync.Mutex
	reservations map[kinds.Key]Reservation
	used         map[string]*Usage // by cluster
	rooms        *Rooms
}

// NewCapacity returns a Capacity without any reservation.
func NewCapacity(now func() time.Time) *Capacity {
	return &Capacity{reservations: map[kinds.Key]Reservation{}, used: map[string]*Usage{}, rooms: newRooms(now)}
}

// Rooms returns the room that clusters report.
func (c *Capacity) Rooms() *Rooms { return c.rooms }

// RoomFunc returns how many replicas of the object fit into a cluster with these limits, those
// included that it has there, and names the limit that is reached first, which may be the room that the cluster
// reports. It has room for those that it is assigned. A nil count is no limit.
type RoomFunc func(perReplica Usage, cluster string, assigned int64, limits *v1alpha1.Limits) (replicas *int64, limit string)

// Reserve runs a decision that depends on room, and stores its reservation. Decisions run one at a
// time: they must not block.
func (c *Capacity) Reserve(key kinds.Key, decide func(RoomFunc) (Reservation, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, err := decide(func(perReplica Usage, cluster string, assigned int64, limits *v1alpha1.Limits) (*int64, string) {
		return c.room(key, perReplica, cluster, assigned, limits)
	})
	if err != nil {
		return err
	}
	c.store(key, r, false)
	return nil
}

func (c *Capacity) room(key kinds.Key, perReplica Usage, cluster string, assigned int64, limits *v1alpha1.Limits) (*int64, string) {
	if perReplica.Replicas == 0 {
		return nil, ""
	}
	limit, reached := c.limit(key, perReplica, cluster, limits)
	free, lacks, known := c.rooms.fit(cluster, perReplica)
	if n := max(assigned, c.reservations[key].Replicas[cluster]) + free; known && key.Group != "batch" && (limit == nil || n < *limit) {
		return &n, fmt.Sprintf("its nodes have too little free for more: they lack %s", lacks)
	}
	return limit, reached
}

// limit returns how many replicas the limits of a cluster allow, and the limit that is reached first.
func (c *Capacity) limit(key kinds.Key, perReplica Usage, cluster string, limits *v1alpha1.Limits) (*int64, string) {
	if limits == nil {
		return nil, ""
	}
	var others Usage
	if u := c.used[cluster]; u != nil {
		others = *u
	}
	if own, ok := c.reservations[key]; ok {
		others.add(own.PerReplica, -own.Replicas[cluster])
	}
	var room *int64
	reached := ""
	lower := func(limit, used, per int64, name string) {
		if per <= 0 {
			return
		}
		if n := max(0, limit-used) / per; room == nil || n < *room {
			room, reached = &n, fmt.Sprintf("limits.%s %d, %d of it used by others", name, limit, used)
		}
	}
	if limits.Replicas != nil {
		lower(int64(*limits.Replicas), 0, 1, "replicas")
	}
	if limits.Pods != nil {
		lower(int64(*limits.Pods), others.Replicas, 1, "pods")
	}
	if limits.CPU != nil {
		lower(limits.CPU.MilliValue(), others.MilliCPU, perReplica.MilliCPU, "cpu (in thousandths)")
	}
	if limits.Memory != nil {
		lower(limits.Memory.Value(), others.Memory, perReplica.Memory, "memory")
	}
	return room, reached
}

// Set replaces the reservation of an object.
func (c *Capacity) Set(key kinds.Key, r Reservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store(key, r, false)
}

// Restore sets the reservation that a new leader reads.
func (c *Capacity) Restore(key kinds.Key, r Reservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store(key, r, true)
}

// AwaitRoom sets for which room of which clusters an object is queued.
func (c *Capacity) AwaitRoom(key kinds.Key, room AwaitedRoom) { c.rooms.await(key, room) }

func (c *Capacity) store(key kinds.Key, r Reservation, restored bool) {
	for cluster := range c.reservations[key].Replicas {
		if _, stays := r.Replicas[cluster]; !stays {
			c.rooms.reserve(key, cluster, r.PerReplica, 0, 0, false)
		}
	}
	for cluster, n := range r.Replicas {
		existing, reported := r.Existing[cluster]
		if !reported {
			existing = -1
		}
		c.rooms.reserve(key, cluster, r.PerReplica, n, existing, restored)
	}
	c.count(c.reservations[key], -1)
	c.count(r, 1)
	if len(r.Replicas) == 0 {
		delete(c.reservations, key)
		return
	}
	c.reservations[key] = r
}

func (c *Capacity) count(r Reservation, sign int64) {
	for cluster, n := range r.Replicas {
		u := c.used[cluster]
		if u == nil {
			u = &Usage{}
			c.used[cluster] = u
		}
		u.add(r.PerReplica, sign*n)
		u.Objects += sign
	}
}

// Usage returns what all objects use of a cluster.
func (c *Capacity) Usage(cluster string) Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u := c.used[cluster]; u != nil {
		return *u
	}
	return Usage{}
}
