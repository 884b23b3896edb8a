// SPDX-License-Identifier: Apache-2.0

package ipamtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// Fake is an in-memory allocator.Store that behaves like the API server: one version counter, status
// writes that compare versions, writes without a change that keep the version, and deletion that
// waits for the finalizer.
type Fake struct {
	mu        sync.Mutex
	version   int
	objects   map[network.Ref]*status.Object
	endpoints map[string]endpoint
	problems  []error
	writes    int
	uids      int // of endpoints
}

type endpoint struct {
	ref network.Ref
	status.Endpoint
}

// NewFake returns an empty store.
func NewFake() *Fake {
	return &Fake{objects: map[network.Ref]*status.Object{}, endpoints: map[string]endpoint{}}
}

// Get implements allocator.Store.
func (f *Fake) Get(ctx context.Context, ref network.Ref) (*status.Object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o := f.objects[ref]
	if o == nil {
		return nil, fmt.Errorf("get %v: %w", ref, status.ErrNotFound)
	}
	return clone(o), nil
}

// Update implements allocator.Store.
func (f *Fake) Update(ctx context.Context, obj *status.Object) (*status.Object, error) {
	return f.write(ctx, obj, func(o *status.Object) {
		o.IPAM = obj.IPAM.DeepCopy()
	})
}

// Protect implements allocator.Store.
func (f *Fake) Protect(ctx context.Context, obj *status.Object, on bool) (*status.Object, error) {
	if on && obj.Deleting && !obj.Protected {
		return nil, fmt.Errorf("protect %v: no new finalizers on an object in deletion", obj.Ref)
	}
	return f.write(ctx, obj, func(o *status.Object) { o.Protected = on })
}

// Endpoints implements allocator.Store.
func (f *Fake) Endpoints(ctx context.Context, ref network.Ref) ([]status.Endpoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return f.list(ref), nil
}

func (f *Fake) list(ref network.Ref) []status.Endpoint {
	var out []status.Endpoint
	for _, name := range slices.Sorted(maps.Keys(f.endpoints)) {
		if ep := f.endpoints[name]; ep.ref == ref {
			out = append(out, ep.Endpoint)
		}
	}
	return out
}

// write changes the stored object if it still has the version of obj.
func (f *Fake) write(ctx context.Context, obj *status.Object, change func(*status.Object)) (*status.Object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	old := f.objects[obj.Ref]
	switch {
	case old == nil:
		return nil, fmt.Errorf("write %v: %w", obj.Ref, status.ErrNotFound)
	case old.UID != obj.UID, old.ResourceVersion != obj.ResourceVersion:
		return nil, fmt.Errorf("write %v: %w", obj.Ref, status.ErrConflict)
	}
	o := clone(old)
	change(o)
	if same(old, o) {
		return clone(o), nil
	}
	f.writes++
	f.put(o)
	if o.Deleting && !o.Protected {
		delete(f.objects, o.Ref)
	}
	return clone(o), nil
}

func same(a, b *status.Object) bool {
	return a.Protected == b.Protected && reflect.DeepEqual(a.IPAM, b.IPAM)
}

// put stores an object under a new version and checks it.
func (f *Fake) put(o *status.Object) {
	f.version++
	o.ResourceVersion = strconv.Itoa(f.version)
	f.objects[o.Ref] = o
	f.check(o)
}

// check records problems of an object after a change. The caller holds f.mu.
func (f *Fake) check(o *status.Object) {
	if o.Recovering() {
		return // its bits need not be correct yet
	}
	if err := Covered(o, f.list(o.Ref)); err != nil {
		f.problems = append(f.problems, fmt.Errorf("version %s: %w", o.ResourceVersion, err))
	}
}

// clone copies an object except for its network, which is never changed.
func clone(o *status.Object) *status.Object {
	c := *o
	c.IPAM = o.IPAM.DeepCopy()
	return &c
}

// Create creates a network object with a new UID, or updates the spec of the object of that name. It
// returns the network as stored. The default type is ipvlan, as in the API.
func (f *Fake) Create(net *network.Network) *network.Network {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := *net
	n.Type = cmp.Or(n.Type, "ipvlan")
	o := &status.Object{Ref: n.Ref, Network: &n}
	if old := f.objects[n.Ref]; old != nil {
		o = clone(old)
		o.Network, o.Invalid = &n, nil
	} else {
		o.UID = "uid-" + strconv.Itoa(f.version+1)
	}
	o.Generation++
	n.UID, n.Generation = o.UID, o.Generation
	f.put(o)
	return &n
}

// Spoil makes the spec of a network invalid; Create repairs it.
func (f *Fake) Spoil(ref network.Ref, invalid error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := clone(f.objects[ref])
	o.Network, o.Invalid = nil, invalid
	o.Generation++
	f.put(o)
}

// Delete deletes a network: at once, or, if it has the finalizer, when that is removed.
func (f *Fake) Delete(ref network.Ref) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.objects[ref]
	if o == nil {
		return
	}
	if !o.Protected {
		delete(f.objects, ref)
		return
	}
	o = clone(o)
	o.Deleting = true
	f.put(o)
}

// SetIPAM replaces status.ipam without any check, as a backup tool or a restored etcd does; nil removes
// it.
func (f *Fake) SetIPAM(ref network.Ref, ipam *v1.IPAMStatus) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := clone(f.objects[ref])
	o.IPAM = ipam.DeepCopy()
	f.version++
	o.ResourceVersion = strconv.Itoa(f.version)
	f.objects[ref] = o
}

// AddEndpoint creates a DanmEp for the network of that name with a new UID, or updates the DanmEp of
// its name.
func (f *Fake) AddEndpoint(ref network.Ref, ep status.Endpoint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := ep.Namespace + "/" + ep.Name
	f.uids++
	ep.UID = cmp.Or(f.endpoints[key].UID, "uid-of-ep-"+strconv.Itoa(f.uids))
	f.endpoints[key] = endpoint{ref, ep}
}

// RemoveEndpoint deletes a DanmEp at once.
func (f *Fake) RemoveEndpoint(namespace, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := namespace + "/" + name
	ep, ok := f.endpoints[key]
	delete(f.endpoints, key)
	if o := f.objects[ep.ref]; ok && o != nil {
		f.check(o)
	}
}

// Object returns the stored object, or nil.
func (f *Fake) Object(ref network.Ref) *status.Object {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.objects[ref]; o != nil {
		return clone(o)
	}
	return nil
}

// Writes counts the writes that changed something.
func (f *Fake) Writes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}

// Problems returns the errors of Covered after all writes so far.
func (f *Fake) Problems() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.problems)
}

// Snapshot is the state of a store, like a backup of etcd.
type Snapshot struct {
	version   int
	objects   map[network.Ref]*status.Object
	endpoints map[string]endpoint
}

// Snapshot returns the current state.
func (f *Fake) Snapshot() Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Snapshot{version: f.version, objects: map[network.Ref]*status.Object{}, endpoints: maps.Clone(f.endpoints)}
	for ref, o := range f.objects {
		s.objects[ref] = clone(o)
	}
	return s
}

// Restore restores a snapshot: objects get their previous versions, and new writes get versions that
// were never used, as after a restore of etcd with --bump-revision. It reports whether a network has
// changed since the snapshot.
func (f *Fake) Restore(s Snapshot) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ref, o := range f.objects {
		changed = changed || s.objects[ref] == nil || s.objects[ref].ResourceVersion != o.ResourceVersion
	}
	f.objects, f.endpoints = map[network.Ref]*status.Object{}, maps.Clone(s.endpoints)
	for ref, o := range s.objects {
		f.objects[ref] = clone(o)
	}
	return changed
}

// Rewind restores a snapshot together with its version counter, as after a restore of etcd without
// --bump-revision.
func (f *Fake) Rewind(s Snapshot) {
	f.Restore(s)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version = s.version
}
