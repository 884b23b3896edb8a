// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// listRetryInterval is the delay between tries while the API server is unreachable.
const listRetryInterval = time.Second

// networkInformer keeps the index of networks up to date. It watches metadata, so that address
// claims cost little, and reads a network whose spec changed.
type networkInformer struct {
	cache  cache.Cache
	reader client.Client
	index  *networkIndex
	queue  workqueue.TypedRateLimitingInterface[network.Ref]
	// onTenantNetworkDelete is called when a TenantNetwork was deleted.
	onTenantNetworkDelete func(client.Object)
}

func newNetworkInformer(c cache.Cache, reader client.Client, index *networkIndex, onTenantNetworkDelete func(client.Object)) *networkInformer {
	return &networkInformer{cache: c, reader: reader, index: index, onTenantNetworkDelete: onTenantNetworkDelete, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[network.Ref](100*time.Millisecond, 30*time.Second))}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica needs the index.
func (f *networkInformer) NeedLeaderElection() bool { return false }

// Start runs until ctx ends.
func (f *networkInformer) Start(ctx context.Context) error {
	for f.listAll(ctx) != nil { // the API server may not be reachable yet
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(listRetryInterval):
		}
	}
	f.index.markSynced()
	informers, err := f.addEventHandlers(ctx)
	if ctx.Err() != nil {
		return nil // a cache that is stopped may return any error
	}
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { f.requeueDeleted(ctx, informers) })
	stop := context.AfterFunc(ctx, f.queue.ShutDown)
	defer stop()
	for {
		ref, over := f.queue.Get()
		if over {
			return nil
		}
		if err := f.sync(ctx, ref); err != nil {
			f.queue.AddRateLimited(ref)
		} else {
			f.queue.Forget(ref)
		}
		f.queue.Done(ref)
	}
}

// listAll reads all networks by lists, because single reads would take minutes.
func (f *networkInformer) listAll(ctx context.Context) error {
	return eachNetwork(ctx, f.reader, func(ref network.Ref, obj client.Object) { f.index.put(ref, parseStored(obj)) })
}

// addEventHandlers handles the events of networks' metadata.
func (f *networkInformer) addEventHandlers(ctx context.Context) ([]cache.Informer, error) {
	var informers []cache.Informer
	for _, kind := range kube.NetworkKinds() {
		informer, err := f.cache.GetInformer(ctx, kube.PartialMetadata(kind), cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", kind, err)
		}
		onUpdate := func(obj any) { f.onUpdate(kind, obj) }
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: onUpdate, UpdateFunc: func(_, obj any) { onUpdate(obj) }, DeleteFunc: func(obj any) { f.onDelete(kind, obj) },
		}); err != nil {
			return nil, fmt.Errorf("watch %s: %w", kind, err)
		}
		informers = append(informers, informer)
	}
	return informers, nil
}

func (f *networkInformer) onUpdate(kind string, obj any) {
	meta, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	ref, version := kube.NetworkRefOf(kind, meta), kube.SpecVersionOf(meta)
	if !f.index.hasVersion(ref, version) && !f.index.confirmStored(ref, version, meta.CreationTimestamp.Time) {
		f.queue.Add(ref)
	}
}

func (f *networkInformer) onDelete(kind string, obj any) {
	if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	meta, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	f.queue.Add(kube.NetworkRefOf(kind, meta))
	if kind == v1.KindTenantNetwork {
		f.onTenantNetworkDelete(meta)
	}
}

// requeueDeleted queues the networks that were deleted between listAll and the start of the
// informers, which do not report them. Without it, such a network would keep its VLAN in the index
// until this replica restarts.
func (f *networkInformer) requeueDeleted(ctx context.Context, informers []cache.Informer) {
	for _, i := range informers {
		if !toolscache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
			return
		}
	}
	for _, ref := range f.index.refs() {
		if f.cache.Get(ctx, kube.ObjectKey(ref), kube.PartialMetadata(ref.Kind)) != nil {
			f.queue.Add(ref) // sync reads whether it exists
		}
	}
}

// sync reads one network into the index.
func (f *networkInformer) sync(ctx context.Context, ref network.Ref) error {
	obj, err := kube.NewNetwork(ref.Kind)
	if err != nil {
		return err
	}
	err = f.reader.Get(ctx, kube.ObjectKey(ref), obj)
	if apierrors.IsNotFound(err) {
		f.index.remove(ref)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", ref, err)
	}
	f.index.put(ref, parseStored(obj))
	return nil
}
