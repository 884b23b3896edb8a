// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"k8s.io/utils/ptr"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// defaultConcurrentMoves applies where spec.drain.maxConcurrentMoves is not set.
const defaultConcurrentMoves = 10

// ErrDrainLimit is returned when as many objects leave a cluster as its drain allows at a time.
var ErrDrainLimit = errors.New("spec.drain.maxConcurrentMoves objects are leaving the cluster already")

// Queue is the work queue of the objects.
type Queue interface {
	Add(kinds.Key)
}

// Drains bounds how many objects leave a draining cluster at a time.
type Drains struct {
	mu      sync.Mutex
	leaving map[string]map[kinds.Key]bool // by cluster
	waiting map[string]map[kinds.Key]bool
	queue   Queue // nil before the controller runs
}

// NewDrains returns a Drains that no object uses.
func NewDrains() *Drains {
	return &Drains{leaving: map[string]map[kinds.Key]bool{}, waiting: map[string]map[kinds.Key]bool{}}
}

// SetQueue sets the queue that waiting objects are added to when it is their turn.
func (d *Drains) SetQueue(q Queue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = q
}

// Resume counts the moves of a stored Assignment, after a change of the leader.
func (d *Drains) Resume(a *v1alpha1.Assignment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range a.Spec.Targets {
		if t.State == v1alpha1.TargetDraining || t.State == v1alpha1.TargetRemoving {
			add(d.leaving, string(t.Cluster), kinds.KeyOf(a.Spec.Object))
		}
	}
}

// MustWait reports whether an object must wait until another one has left the cluster. It then
// counts as waiting, and is queued when a slot is free.
func (d *Drains) MustWait(c *v1alpha1.Cluster, key kinds.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hasSlot(c, key) {
		return false
	}
	add(d.waiting, c.Name, key)
	return true
}

// Start lets an object leave a cluster, and reports whether a slot was free.
func (d *Drains) Start(c *v1alpha1.Cluster, key kinds.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.hasSlot(c, key) {
		return false
	}
	add(d.leaving, c.Name, key)
	delete(d.waiting[c.Name], key)
	return true
}

func (d *Drains) hasSlot(c *v1alpha1.Cluster, key kinds.Key) bool {
	limit := int(cmp.Or(c.Spec.Drain.MaxConcurrentMoves, defaultConcurrentMoves))
	return d.leaving[c.Name][key] || len(d.leaving[c.Name]) < limit
}

// StopWaiting records that an object stays in a cluster for another reason than the limit.
func (d *Drains) StopWaiting(cluster string, key kinds.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waiting[cluster], key)
}

// IsWaiting reports whether an object stays in a cluster only because of the limit.
func (d *Drains) IsWaiting(cluster string, key kinds.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting[cluster][key]
}

// Update frees the slots of the clusters that an object does not leave any more by its stored
// targets, and queues objects that wait for them. IsDraining tells which clusters drain.
func (d *Drains) Update(key kinds.Key, targets []v1alpha1.Target, isDraining func(cluster string) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for cluster, keys := range d.waiting {
		if _, ok := TargetOf(targets, cluster); !ok {
			delete(keys, key)
		}
	}
	for cluster, keys := range d.leaving {
		t, ok := TargetOf(targets, cluster)
		if !keys[key] || ok && isDraining(cluster) && IsLeaving(t) {
			continue
		}
		delete(keys, key)
		queued := 0
		for next := range d.waiting[cluster] {
			if d.queue == nil || queued == defaultConcurrentMoves {
				break
			}
			queued++
			d.queue.Add(next)
		}
	}
}

func add(to map[string]map[kinds.Key]bool, cluster string, key kinds.Key) {
	if to[cluster] == nil {
		to[cluster] = map[kinds.Key]bool{}
	}
	to[cluster][key] = true
}

// IsDraining reports whether a Cluster is to be emptied; a nil Cluster is not.
func IsDraining(c *v1alpha1.Cluster) bool {
	return c != nil && c.Spec.Drain != nil && c.Spec.Drain.Mode == v1alpha1.DrainMove
}

// IsLeaving reports whether a target loses the object, or replicas of it.
func IsLeaving(t v1alpha1.Target) bool {
	return t.State != v1alpha1.TargetActive || ptr.Deref(t.RequestedReplicas, 0) > ptr.Deref(t.Replicas, 0)
}

// TargetOf returns the target of a cluster, and whether there is one.
func TargetOf(targets []v1alpha1.Target, cluster string) (v1alpha1.Target, bool) {
	at := slices.IndexFunc(targets, func(t v1alpha1.Target) bool { return string(t.Cluster) == cluster })
	if at < 0 {
		return v1alpha1.Target{}, false
	}
	return targets[at], true
}
