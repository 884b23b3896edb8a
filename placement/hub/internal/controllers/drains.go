// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// drains bounds how many objects leave a cluster that is being drained at a time.
type drains struct {
	mu      sync.Mutex
	leaving map[string]map[Key]bool // by cluster
	waiting map[string]map[Key]bool
	queue   queue // where objects wait for their pass; nil before the controller runs
}

func newDrains() *drains {
	return &drains{leaving: map[string]map[Key]bool{}, waiting: map[string]map[Key]bool{}}
}

// wake says where objects wait for their pass.
func (d *drains) wake(q queue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = q
}

// defaultMoves is how many objects leave a cluster at a time when its drain does not say.
const defaultMoves = 10

// resume notes the moves that an Assignment was stored with.
func (d *drains) resume(a *v1alpha1.Assignment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range a.Spec.Targets {
		if t.State == v1alpha1.TargetDraining || t.State == v1alpha1.TargetRemoving {
			note(d.leaving, string(t.Cluster), keyOf(a.Spec.Object))
		}
	}
}

// full says that an object must wait until another one has left the cluster. It gets a pass
// when that is so.
func (d *drains) full(c *v1alpha1.Cluster, key Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leaving[c.Name][key] || len(d.leaving[c.Name]) < limitOf(c) {
		return false
	}
	note(d.waiting, c.Name, key)
	return true
}

// start lets an object leave a cluster, if that is not full.
func (d *drains) start(c *v1alpha1.Cluster, key Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.leaving[c.Name][key] && len(d.leaving[c.Name]) >= limitOf(c) {
		return false
	}
	note(d.leaving, c.Name, key)
	delete(d.waiting[c.Name], key)
	return true
}

// stay notes that an object does not leave a cluster, though it may: it waits for no other.
func (d *drains) stay(cluster string, key Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waiting[cluster], key)
}

// waits says that an object only waits until another one has left the cluster.
func (d *drains) waits(cluster string, key Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting[cluster][key]
}

// finish notes which clusters an object leaves still, and which it has, and lets others leave
// the rest.
func (d *drains) finish(key Key, leaves, has func(cluster string) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for cluster, keys := range d.waiting {
		if !has(cluster) {
			delete(keys, key)
		}
	}
	for cluster, keys := range d.leaving {
		if !keys[key] || leaves(cluster) {
			continue
		}
		delete(keys, key)
		woken := 0
		for next := range d.waiting[cluster] {
			if d.queue == nil || woken == defaultMoves {
				break
			}
			woken++
			d.queue.Add(next)
		}
	}
}

func limitOf(c *v1alpha1.Cluster) int {
	return int(cmp.Or(c.Spec.Drain.MaxConcurrentMoves, defaultMoves))
}

func note(in map[string]map[Key]bool, cluster string, key Key) {
	if in[cluster] == nil {
		in[cluster] = map[Key]bool{}
	}
	in[cluster][key] = true
}

// drainWait is how soon an object is looked at again that waits to leave a cluster, at the
// latest.
const drainWait = 15 * time.Second

// drained says that a cluster is to be emptied.
func drained(c *v1alpha1.Cluster) bool {
	return c != nil && c.Spec.Drain != nil && c.Spec.Drain.Mode == v1alpha1.DrainMove
}

// waits says that the object must wait before it may leave a cluster that is being drained.
func (p *pass) waits(c *v1alpha1.Cluster) bool {
	if !drained(c) || !p.drains.full(c, p.key) {
		return false
	}
	p.again(drainWait)
	return true
}

// full says that a plan left an object in a cluster until another one has left it.
func full(s policy.PlanInput, cluster string) bool {
	return slices.ContainsFunc(s.Clusters, func(c policy.Cluster) bool { return c.Name == cluster && c.DrainLimitReached })
}

// startDrains lets the object leave clusters that are being drained. Others may have filled
// them since the plan was made: then it is made again.
func (p *pass) startDrains(s policy.PlanInput, w wanted) error {
	for _, name := range slices.Sorted(maps.Keys(s.Assigned)) {
		c := p.clusters[name]
		switch {
		case !drained(c):
		case w.has(name) && w.replicas[name] >= s.Assigned[name]:
			if !full(s, name) {
				p.drains.stay(name, p.key)
			}
		case !p.drains.start(c, p.key):
			return errDrainFull
		}
	}
	return nil
}
