// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// Every node looks at a network in deletion: at a random time within
// drainJitter, so that one of them is first and the others see its work in
// their caches; and again, from drainAgain to drainLast, while it is in use.
const (
	drainJitter = 3 * time.Second
	drainAgain  = 5 * time.Second
	drainLast   = time.Minute
)

// Collector takes the finalizer off a network in deletion that nobody uses.
type Collector interface {
	// Collect also frees what nobody covers, and returns how many addresses.
	Collect(ctx context.Context, net claims.Key) (int64, error)
}

// Drain ends the deletion of networks.
type Drain struct {
	// cached reads metadata that may be stale.
	cached  client.Reader
	collect Collector
	queue   workqueue.TypedRateLimitingInterface[network.Ref]
}

// NewDrain returns a Drain that works with Run. Cached reads the metadata of
// networks.
func NewDrain(cached client.Reader, collect Collector) *Drain {
	return &Drain{cached: cached, collect: collect, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[network.Ref](drainAgain, drainLast))}
}

// Look makes Drain look at a network soon; it is called for each change of one.
func (d *Drain) Look(ref network.Ref) {
	if ref != (network.Ref{}) {
		d.queue.AddAfter(ref, rand.N(drainJitter))
	}
}

// Run works until ctx ends.
func (d *Drain) Run(ctx context.Context) error {
	work(ctx, d.queue, 1, d.sync)
	return nil
}

// errInUse brings a network back later.
var errInUse = fmt.Errorf("network is still in use")

// sync looks at one network.
func (d *Drain) sync(ctx context.Context, ref network.Ref) error {
	meta := objects.Metadata(ref.Kind)
	if err := d.cached.Get(ctx, objects.Key(ref), meta); err != nil {
		return client.IgnoreNotFound(err)
	}
	if meta.DeletionTimestamp == nil || !slices.Contains(meta.Finalizers, v1.InUseFinalizer) {
		return nil
	}
	if _, err := d.collect.Collect(ctx, claims.Key{Ref: ref, UID: string(meta.UID)}); err != nil {
		return fmt.Errorf("collect addresses of %s: %w", ref, err)
	}
	// Either the finalizer is off now and the cache will say so, or a Pod is
	// still attached somewhere.
	return fmt.Errorf("%s: %w", ref, errInUse)
}
