// SPDX-License-Identifier: Apache-2.0

package networkcache

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
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Each node settles a network in deletion once, after a random delay of at most
// finalizerJitter. It retries a failure after finalizerMinBackoff to finalizerMaxBackoff.
const (
	finalizerJitter     = time.Second
	finalizerMinBackoff = time.Second
	finalizerMaxBackoff = time.Minute
)

// Settler frees addresses of this node's entries.
type Settler interface {
	// ReconcileEntries compares this node's entries in the networks with the journal, and frees the
	// addresses that no Pod uses.
	ReconcileEntries(ctx context.Context, nets ...network.Key) error
}

// Finalizers frees this node's addresses of networks in deletion. The addresses of running Pods
// are freed when the Pods end. The controller removes the finalizer danm.io/in-use when no node
// has an entry any more.
type Finalizers struct {
	// cached reads metadata, which may be stale.
	cached  client.Reader
	settler Settler
	queue   workqueue.TypedRateLimitingInterface[network.Ref]
	// doneUIDs has the networks in deletion that this node has settled.
	doneUIDs sync.Map // network.Ref → types.UID
}

// NewFinalizers returns Finalizers that work while Run runs. cached reads the metadata of
// networks.
func NewFinalizers(cached client.Reader, settler Settler) *Finalizers {
	return &Finalizers{cached: cached, settler: settler, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[network.Ref](finalizerMinBackoff, finalizerMaxBackoff))}
}

// Enqueue queues a network after a change. It ignores the empty reference.
func (f *Finalizers) Enqueue(ref network.Ref) {
	if ref != (network.Ref{}) {
		f.queue.AddAfter(ref, rand.N(finalizerJitter))
	}
}

// Run settles networks in deletion until ctx ends.
func (f *Finalizers) Run(ctx context.Context) error {
	kubeclient.RunWorkers(ctx, f.queue, 1, f.sync)
	return nil
}

// sync settles one network if it is in deletion.
func (f *Finalizers) sync(ctx context.Context, ref network.Ref) error {
	metadata := kube.PartialMetadata(ref.Kind)
	if err := f.cached.Get(ctx, kube.ObjectKey(ref), metadata); err != nil {
		f.doneUIDs.Delete(ref)
		return client.IgnoreNotFound(err)
	}
	if metadata.DeletionTimestamp == nil || !slices.Contains(metadata.Finalizers, v1.InUseFinalizer) {
		return nil
	}
	if done, _ := f.doneUIDs.Load(ref); done == metadata.UID {
		return nil
	}
	if err := f.settler.ReconcileEntries(ctx, network.Key{Ref: ref, UID: string(metadata.UID)}); err != nil {
		return fmt.Errorf("free addresses of %s: %w", ref, err)
	}
	f.doneUIDs.Store(ref, metadata.UID)
	return nil
}
