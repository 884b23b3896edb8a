// SPDX-License-Identifier: Apache-2.0

package ipamtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// Fake is a allocator.Store in memory that behaves as the API server does: one
// version counter, status writes that compare versions, writes without a change
// that leave the version alone, deletion that waits for the finalizer.
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
		o.IPAM, o.Allocated, o.Capacity = obj.IPAM.DeepCopy(), obj.Allocated, obj.Capacity
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

// write changes the stored object if it is still the one that obj was read as.
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

// put stores an object under a new version and checks it.
func (f *Fake) put(o *status.Object) {
	f.version++
	o.ResourceVersion = strconv.Itoa(f.version)
	f.objects[o.Ref] = o
	f.check(o)
}

// clone copies all of an object but the network, which nobody changes.
func clone(o *status.Object) *status.Object {
	c := *o
	c.IPAM = o.IPAM.DeepCopy()
	return &c
}
