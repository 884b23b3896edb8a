// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/internal/drain"
)

const (
	// defaultConcurrentMoves applies where spec.drain.maxConcurrentMoves is not set.
	defaultConcurrentMoves = 10
	// awaitPriorities is how long a drain waits until the priorities of all objects are known.
	awaitPriorities = 30 * time.Second
)

// ErrDrainLimit is returned when as many objects leave a cluster as its drain allows at a time.
var ErrDrainLimit = errors.New("spec.drain.maxConcurrentMoves objects are leaving the cluster already")

// Queue is the work queue of the objects.
type Queue interface {
	Add(kinds.Key)
}

// Stay is why an object does not leave a draining cluster although it may.
type Stay int

// Causes why an object stays.
const (
	// NotStaying: it leaves, or waits for its turn.
	NotStaying Stay = iota
	// NoPlace: no other cluster takes it at present. The condition Placed has why.
	NoPlace
	// AwaitsUser: a user must correct something. The condition Placed has why.
	AwaitsUser
	// Pinned: its policy allows no other cluster.
	Pinned
	// HasVolumes: it has a volume claim in the cluster.
	HasVolumes
	// RunsOnce: it has started in the cluster, or may have, and must not run a second time.
	RunsOnce
)

// Drains decides which objects leave draining clusters, and queues only those. The stored targets tell which objects
// move: a new leader continues their moves from its first decision about each, and begins others after Check has
// listed all.
type Drains struct {
	mu       sync.Mutex
	clusters map[string]*drainingCluster
	queue    Queue // nil before the controller runs
}

// drainingCluster has the objects that a draining cluster still has.
type drainingCluster struct {
	max     int
	since   time.Time // when the objects were first listed; zero: they were not, and none leaves
	objects map[kinds.Key]*drainingObject
}

type drainingObject struct {
	drain.Candidate
	grantedAt time.Time // when it got a slot, until it leaves by its stored targets
	stay      Stay
}

// NewDrains returns a Drains without draining clusters.
func NewDrains() *Drains {
	return &Drains{clusters: map[string]*drainingCluster{}}
}

// SetQueue sets the queue that objects are added to when it is their turn.
func (d *Drains) SetQueue(q Queue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = q
}

// End forgets a cluster that is not drained any more.
func (d *Drains) End(cluster string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.clusters, cluster)
}

// IsActive reports whether a cluster is being drained.
func (d *Drains) IsActive(cluster string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.clusters[cluster] != nil
}

// Check compares the objects of a draining cluster with all stored Assignments, and lets the next ones leave. The
// controller of Clusters calls it again and again, so that no object waits for an event that does not come.
func (d *Drains) Check(c *v1alpha1.Cluster, assignments []v1alpha1.Assignment, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dc := d.cluster(c)
	if dc.since.IsZero() {
		dc.since = now
	}
	dependencies := map[kinds.Key]bool{} // what others need
	for i := range assignments {
		for _, key := range DependenciesOf(&assignments[i]) {
			dependencies[key] = true
		}
	}
	found := map[kinds.Key]bool{}
	for i := range assignments {
		a := &assignments[i]
		t, ok := TargetOf(a.Spec.Targets, c.Name)
		if !ok {
			continue
		}
		key := kinds.KeyOf(a.Spec.Object)
		found[key] = true
		o := dc.object(key)
		o.Size, o.DependsOn, o.IsDependency = sizeOf(a, t), nil, dependencies[key]
		for _, dependency := range DependenciesOf(a) {
			o.DependsOn = append(o.DependsOn, dependency.String())
		}
		o.BlockedSince = o.grantedAt
		if IsLeaving(t) {
			o.State, o.BlockedSince = drain.Moving, blockedSince(a)
		}
	}
	for key := range dc.objects {
		if !found[key] {
			delete(dc.objects, key)
		}
	}
	d.begin(dc, now, nil)
}

// DependenciesOf returns the objects that the object of an Assignment needs.
func DependenciesOf(a *v1alpha1.Assignment) (keys []kinds.Key) {
	for _, d := range a.Spec.Dependencies {
		keys = append(keys, kinds.Key{GroupKind: schema.GroupKind{Group: d.Group, Kind: d.Kind}, Namespace: a.Spec.Object.Namespace, Name: d.Name})
	}
	return keys
}

// sizeOf returns what the Pods of an object request in the cluster of a target.
func sizeOf(a *v1alpha1.Assignment, t v1alpha1.Target) drain.Size {
	replicas := int64(max(ptr.Deref(t.Replicas, 1), ptr.Deref(t.RequestedReplicas, 0)))
	per := PerReplica(a.Spec.Decision.Requests)
	return drain.Size{MilliCPU: per.MilliCPU * replicas, Memory: per.Memory * replicas, Replicas: replicas}
}

// blockedSince returns when a blocked move made its last step, and zero for a move that is not blocked.
func blockedSince(a *v1alpha1.Assignment) time.Time {
	if !meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionMoveBlocked) {
		return time.Time{}
	}
	last := time.Unix(0, 0)
	if changed := a.Spec.Decision.LastChangeTime; changed != nil {
		last = changed.Time
	}
	for _, t := range a.Spec.Targets {
		if t.LastTransitionTime != nil && t.LastTransitionTime.After(last) {
			last = t.LastTransitionTime.Time
		}
	}
	return last
}

// MayLeave reports whether the drain lets an object leave a cluster. If not, the object waits, and is queued when it
// is its turn. One that leaves by its stored target continues, also before Check has listed it for a new leader. IsNew
// is true when the object's priority was not known, or another one. What has no place elsewhere may leave at any time:
// Start decides when it has found one.
func (d *Drains) MayLeave(c *v1alpha1.Cluster, key kinds.Key, priority int64, stored v1alpha1.Target, now time.Time) (may, isNew bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dc := d.cluster(c)
	o := dc.object(key)
	isNew = o.State == drain.Unknown || o.Priority != priority
	if o.Priority = priority; o.State == drain.Unknown {
		if o.State = drain.Waiting; IsLeaving(stored) {
			o.State = drain.Moving
		}
		if !dc.awaitsPriorities(now) || !dc.hasUnknown() {
			d.begin(dc, now, &key)
		}
	}
	return o.State == drain.Moving || o.State == drain.Staying, isNew
}

// Start lets an object leave a cluster, and reports whether it may. Ordered is true when a user has ordered the object
// to leave: it waits for no slot then.
func (d *Drains) Start(c *v1alpha1.Cluster, key kinds.Key, ordered bool, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	dc := d.cluster(c)
	o := dc.object(key)
	if o.State == drain.Staying { // it has found a place
		o.State, o.stay = drain.Waiting, NotStaying
		d.begin(dc, now, &key)
	}
	if o.State != drain.Moving && !ordered {
		return false
	}
	o.State, o.stay = drain.Moving, NotStaying
	return true
}

// Stays records why an object stays in a cluster although the drain lets it leave. While it still loses replicas by
// its stored target, it has its slot.
func (d *Drains) Stays(c *v1alpha1.Cluster, key kinds.Key, why Stay, current v1alpha1.Target, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dc := d.cluster(c)
	o := dc.object(key)
	if o.stay, o.TriedAt = why, (time.Time{}); why == NoPlace {
		o.TriedAt = now
	}
	if !IsLeaving(current) {
		d.stop(dc, o, now)
	}
}

// stop takes the slot of an object that stays.
func (d *Drains) stop(dc *drainingCluster, o *drainingObject, now time.Time) {
	had := o.State == drain.Moving
	if o.State, o.grantedAt = drain.Staying, (time.Time{}); had {
		d.begin(dc, now, nil)
	}
}

// StayOf returns why an object stays in a cluster.
func (d *Drains) StayOf(cluster string, key kinds.Key) Stay {
	d.mu.Lock()
	defer d.mu.Unlock()
	if dc := d.clusters[cluster]; dc != nil && dc.objects[key] != nil {
		return dc.objects[key].stay
	}
	return NotStaying
}

// Update records the stored targets of an object, and lets others leave in the slots that it no longer needs. An
// object that does not exist has no targets.
func (d *Drains) Update(key kinds.Key, targets []v1alpha1.Target, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, dc := range d.clusters {
		t, ok := TargetOf(targets, name)
		o := dc.objects[key]
		switch {
		case !ok && o != nil:
			delete(dc.objects, key)
			d.begin(dc, now, nil)
		case !ok:
		case IsLeaving(t):
			o = dc.object(key)
			o.State, o.grantedAt = drain.Moving, time.Time{}
		case o != nil && o.State == drain.Moving && o.stay != NotStaying:
			d.stop(dc, o, now)
		}
	}
}

func (d *Drains) cluster(c *v1alpha1.Cluster) *drainingCluster {
	dc := d.clusters[c.Name]
	if dc == nil {
		dc = &drainingCluster{objects: map[kinds.Key]*drainingObject{}}
		d.clusters[c.Name] = dc
	}
	dc.max = defaultConcurrentMoves
	if c.Spec.Drain != nil {
		dc.max = int(cmp.Or(c.Spec.Drain.MaxConcurrentMoves, defaultConcurrentMoves))
	}
	return dc
}

// begin gives slots to the next objects, and queues them. The caller reconciles the object self already.
func (d *Drains) begin(dc *drainingCluster, now time.Time, self *kinds.Key) {
	if dc.since.IsZero() {
		return
	}
	candidates, keys := make([]drain.Candidate, 0, len(dc.objects)), make(map[string]kinds.Key, len(dc.objects))
	for key, o := range dc.objects {
		candidates, keys[o.Name] = append(candidates, o.Candidate), key
	}
	limits := drain.Limits{MaxConcurrentMoves: dc.max, AwaitUnknown: dc.awaitsPriorities(now)}
	for _, name := range drain.Next(candidates, limits, now) {
		key := keys[name]
		o := dc.objects[key]
		o.State, o.grantedAt, o.BlockedSince = drain.Moving, now, now
		if d.queue != nil && (self == nil || key != *self) {
			d.queue.Add(key)
		}
	}
}

func (dc *drainingCluster) object(key kinds.Key) *drainingObject {
	o := dc.objects[key]
	if o == nil {
		o = &drainingObject{Candidate: drain.Candidate{Name: key.String(), Namespace: key.Namespace}}
		dc.objects[key] = o
	}
	return o
}

func (dc *drainingCluster) awaitsPriorities(now time.Time) bool {
	return dc.since.IsZero() || now.Sub(dc.since) < awaitPriorities
}

func (dc *drainingCluster) hasUnknown() bool {
	for _, o := range dc.objects {
		if o.State == drain.Unknown && !o.IsDependency {
			return true
		}
	}
	return false
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
