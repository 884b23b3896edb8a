// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// Every node looks once at a network in deletion, at a random time within drainJitter,
// and again, from drainAgain to drainLast, if that fails.
const (
	finalizerJitter     = time.Second
	finalizerMinBackoff = time.Second
	finalizerMaxBackoff = time.Minute
)

// AddressSettler gives back what this node's entry has of networks and no Pod uses.
type AddressSettler interface {
	// Settle compares the entry with the journal and frees the rest.
	Settle(ctx context.Context, nets ...claims.Key) error
}

// Finalizers has this node give back what it covers of networks in deletion. Addresses in use
// go back with their Pods. The controller takes the finalizer off when no node has an
// entry any more.
type Finalizers struct {
	// cached reads metadata that may be stale.
	cached  client.Reader
	settler AddressSettler
	queue   workqueue.TypedRateLimitingInterface[network.Ref]
	// doneUIDs are the networks in deletion that this node has looked at.
	doneUIDs sync.Map // network.Ref → types.UID
}

// NewFinalizers returns a Drain that works with Run. Cached reads the metadata of
// networks.
func NewFinalizers(cached client.Reader, settle AddressSettler) *Finalizers {
	return &Finalizers{cached: cached, settler: settle, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[network.Ref](finalizerMinBackoff, finalizerMaxBackoff))}
}

// Enqueue makes Drain look at a network soon; it is called for each change of one.
func (d *Finalizers) Enqueue(ref network.Ref) {
	if ref != (network.Ref{}) {
		d.queue.AddAfter(ref, rand.N(finalizerJitter))
	}
}

// Run works until ctx ends.
func (d *Finalizers) Run(ctx context.Context) error {
	runWorkers(ctx, d.queue, 1, d.sync)
	return nil
}

// sync looks at one network.
func (d *Finalizers) sync(ctx context.Context, ref network.Ref) error {
	meta := kube.PartialMetadata(ref.Kind)
	if err := d.cached.Get(ctx, kube.ObjectKey(ref), meta); err != nil {
		d.doneUIDs.Delete(ref)
		return client.IgnoreNotFound(err)
	}
	if meta.DeletionTimestamp == nil || !slices.Contains(meta.Finalizers, v1.InUseFinalizer) {
		return nil
	}
	if done, _ := d.doneUIDs.Load(ref); done == meta.UID {
		return nil
	}
	if err := d.settler.Settle(ctx, claims.Key{Ref: ref, UID: string(meta.UID)}); err != nil {
		return fmt.Errorf("give back addresses of %s: %w", ref, err)
	}
	d.doneUIDs.Store(ref, meta.UID)
	return nil
}
