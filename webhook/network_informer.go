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

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// primeAgain is how long to wait for an API server that is away.
const primeAgain = time.Second

// follower keeps the catalog up to date. It watches metadata, so that address claims
// cost it little, and reads a network whose spec changed.
type follower struct {
	cache   cache.Cache
	reader  client.Client
	catalog *catalog
	queue   workqueue.TypedRateLimitingInterface[network.Ref]
	// gone is called when a TenantNetwork was deleted.
	gone func(client.Object)
}

func newFollower(c cache.Cache, reader client.Client, known *catalog, gone func(client.Object)) *follower {
	return &follower{cache: c, reader: reader, catalog: known, gone: gone, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[network.Ref](100*time.Millisecond, 30*time.Second))}
}

// NeedLeaderElection says that every replica follows.
func (f *follower) NeedLeaderElection() bool { return false }

// Start works until ctx ends.
func (f *follower) Start(ctx context.Context) error {
	for f.prime(ctx) != nil { // the API server may not be there yet
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(primeAgain):
		}
	}
	f.catalog.completed()
	informers, err := f.watch(ctx)
	if ctx.Err() != nil {
		return nil // whatever a cache that ends says
	}
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { f.catchUp(ctx, informers) })
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

// prime reads all networks by lists: one by one would take minutes.
func (f *follower) prime(ctx context.Context) error {
	for _, kind := range objects.Kinds() {
		fresh := func() client.ObjectList {
			list, _ := objects.NewList(kind) // it is one of objects.Kinds
			return list
		}
		err := eachPage(ctx, f.reader, fresh, func(obj client.Object) {
			f.catalog.put(objects.RefOf(kind, obj), modelOf(obj))
		})
		if err != nil {
			return fmt.Errorf("list networks of kind %s: %w", kind, err)
		}
	}
	return nil
}

// watch registers for the metadata of networks.
func (f *follower) watch(ctx context.Context) ([]cache.Informer, error) {
	var informers []cache.Informer
	for _, kind := range objects.Kinds() {
		informer, err := f.cache.GetInformer(ctx, objects.Metadata(kind), cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", kind, err)
		}
		see := func(obj any) { f.see(kind, obj) }
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: see, UpdateFunc: func(_, obj any) { see(obj) }, DeleteFunc: func(obj any) { f.lose(kind, obj) },
		}); err != nil {
			return nil, fmt.Errorf("watch %s: %w", kind, err)
		}
		informers = append(informers, informer)
	}
	return informers, nil
}

func (f *follower) see(kind string, obj any) {
	meta, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	ref, version := objects.RefOf(kind, meta), objects.VersionOf(meta)
	if !f.catalog.knows(ref, version) && !f.catalog.settle(ref, version, meta.CreationTimestamp.Time) {
		f.queue.Add(ref)
	}
}

func (f *follower) lose(kind string, obj any) {
	if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	meta, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	f.queue.Add(objects.RefOf(kind, meta))
	if kind == v1.KindTenantNetwork {
		f.gone(meta)
	}
}

// catchUp queues the networks that were deleted after prime had read them and before
// the informers began, which are told of nothing that was gone by then: the ghost of a
// network would keep its VLAN from others until this replica ends.
func (f *follower) catchUp(ctx context.Context, informers []cache.Informer) {
	for _, i := range informers {
		if !toolscache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
			return
		}
	}
	for _, ref := range f.catalog.refs() {
		if f.cache.Get(ctx, objects.Key(ref), objects.Metadata(ref.Kind)) != nil {
			f.queue.Add(ref) // not there, or nobody knows: it is read
		}
	}
}

// sync reads one network.
func (f *follower) sync(ctx context.Context, ref network.Ref) error {
	obj, err := objects.New(ref.Kind)
	if err != nil {
		return err
	}
	err = f.reader.Get(ctx, objects.Key(ref), obj)
	if apierrors.IsNotFound(err) {
		f.catalog.remove(ref)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", ref, err)
	}
	f.catalog.put(ref, modelOf(obj))
	return nil
}
