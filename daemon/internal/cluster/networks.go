// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// NetworkCache are the models of all network objects. Metadata is watched; an
// object is read when its version differs from the model at hand.
type NetworkCache struct {
	conn     *Connection
	log      logr.Logger
	models   networkModels
	queue    workqueue.TypedRateLimitingInterface[network.Ref]
	ready    atomic.Bool
	onChange func(network.Ref)
	observer NetworkObserver
	// recoveries are since when the networks recover that this node was told of, by
	// claims.Key.
	recoveries   sync.Map
	onRead       func(client.Object, *network.Network, error)
	reservations *reservationCache
}

// NetworkObserver is told what is watched of networks, in order. Its methods must not block.
type NetworkObserver interface {
	// Look says that a network's metadata is at that resourceVersion.
	Look(net claims.Key, resourceVersion string)
	// Gone says that there is no such network any more.
	Gone(net claims.Key)
	// Reassert says that the network has begun to recover: this node is to report
	// what it has of it, be it nothing.
	Reassert(net claims.Key)
}

// NetworkCacheOptions are those who are told of networks.
type NetworkCacheOptions struct {
	// OnChange is called after a network was added, changed or removed; it must
	// not block. It may be nil.
	OnChange func(network.Ref)
	// Observer is told of each change of a network's metadata, those that come with a
	// write of its status, too. It may be nil.
	Observer NetworkObserver
	// OnRead is called with each object that was read in full, its model, or what
	// is wrong with it; it must not block. It may be nil.
	OnRead func(client.Object, *network.Network, error)
}

// NewNetworkCache returns an empty set of models; Run fills it.
func NewNetworkCache(conn *Connection, log logr.Logger, opts NetworkCacheOptions) *NetworkCache {
	n := &NetworkCache{
		conn: conn, log: log,
		models:       networkModels{byRef: map[network.Ref]kube.ParsedNetwork{}},
		queue:        newQueue[network.Ref](),
		onChange:     func(network.Ref) {},
		observer:     opts.Observer,
		onRead:       func(client.Object, *network.Network, error) {},
		reservations: &reservationCache{conn: conn},
	}
	if opts.OnChange != nil {
		n.onChange = opts.OnChange
	}
	if opts.OnRead != nil {
		n.onRead = opts.OnRead
	}
	return n
}

// networkWorkers read changed networks side by side.
const networkWorkers = 4

// Run watches the networks until ctx ends, which is no error or that of ctx. It
// waits for the API server.
func (n *NetworkCache) Run(ctx context.Context) error {
	var informers []cache.Informer
	for _, kind := range kube.NetworkKinds() {
		i, err := n.watch(ctx, kind)
		if err != nil {
			return err
		}
		informers = append(informers, i)
	}
	for _, i := range informers {
		if !toolscache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
			return nil
		}
	}
	if err := RetryUntilSuccess(ctx, n.loadAll); err != nil {
		return err
	}
	n.ready.Store(true)
	n.onChange(network.Ref{})
	runWorkers(ctx, n.queue, networkWorkers, n.sync)
	return nil
}

// watch queues each network of a kind whose metadata changes.
func (n *NetworkCache) watch(ctx context.Context, kind string) (cache.Informer, error) {
	i, err := n.conn.Cache.GetInformer(ctx, kube.PartialMetadata(kind), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, watchError(ctx, kind, err)
	}
	_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { n.handleChange(kind, obj) },
		UpdateFunc: func(_, obj any) { n.handleChange(kind, obj) },
		DeleteFunc: func(obj any) { n.handleDelete(kind, obj) },
	})
	if err != nil {
		return nil, watchError(ctx, kind, err)
	}
	return i, nil
}

// handleChange queues a network, and says where its metadata is.
func (n *NetworkCache) handleChange(kind string, obj any) {
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	n.queue.Add(kube.NetworkRefOf(kind, o))
	if n.observer == nil {
		return
	}
	net := networkKey(kind, o)
	n.observer.Look(net, o.GetResourceVersion())
	since := o.GetAnnotations()[v1.RecoveringAnnotation]
	if since == "" {
		n.recoveries.Delete(net)
	} else if last, _ := n.recoveries.Swap(net, since); last != since {
		n.observer.Reassert(net)
	}
}

// handleDelete queues a network that was deleted, and says so.
func (n *NetworkCache) handleDelete(kind string, obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	n.queue.Add(kube.NetworkRefOf(kind, o))
	n.recoveries.Delete(networkKey(kind, o))
	if n.observer != nil {
		n.observer.Gone(networkKey(kind, o))
	}
}

// listPageSize is how many networks are in memory in full at a time: each may
// carry a bitmap of 11 KiB.
const listPageSize = 100

// loadAll reads all networks once, in pages, instead of one by one as their
// metadata arrives. One whose assignment cannot be confirmed now, since a TenantConfig
// is damaged or not served, is left to the queue's workers: the others need not wait.
func (n *NetworkCache) loadAll(ctx context.Context) error {
	return n.forEach(ctx, func(obj client.Object, ref network.Ref, read time.Time) {
		m, err := n.confirmedModel(ctx, obj, read)
		if err != nil {
			n.queue.Add(ref)
			m = kube.ParseNetwork(obj)
		} else {
			n.models.set(ref, m)
		}
		n.onRead(obj, m.Network, m.Err)
	})
}

// ReadAll reads all networks, for those who look into objects. The models are left to
// the queue's workers: one of these may be older than what they have.
func (n *NetworkCache) ReadAll(ctx context.Context) error {
	return n.forEach(ctx, func(obj client.Object, _ network.Ref, _ time.Time) {
		m := kube.ParseNetwork(obj)
		n.onRead(obj, m.Network, m.Err)
	})
}

// visitFunc takes one network that was read at that time.
type visitFunc func(obj client.Object, ref network.Ref, read time.Time)

// forEach reads all networks in pages.
func (n *NetworkCache) forEach(ctx context.Context, do visitFunc) error {
	for _, kind := range kube.NetworkKinds() {
		if err := n.forEachOfKind(ctx, kind, do); err != nil {
			return err
		}
	}
	return nil
}

// forEachOfKind reads all objects of one kind.
func (n *NetworkCache) forEachOfKind(ctx context.Context, kind string, do visitFunc) error {
	for next := ""; ; {
		// Each page gets a list of its own. Decoding JSON into a used one leaves what the
		// object before had in the same place, where this one has nothing; only
		// controller-runtime's own decoder empties it first.
		list, err := kube.NewNetworkList(kind)
		if err != nil {
			return err
		}
		if err := n.conn.Direct.List(ctx, list, client.Limit(listPageSize), client.Continue(next)); err != nil {
			return fmt.Errorf("list %ss: %w", kind, err)
		}
		read := time.Now()
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			obj, ok := item.(client.Object)
			if !ok {
				return errors.New("list item is no object")
			}
			do(obj, kube.NetworkRefOf(kind, obj), read)
			return nil
		}); err != nil {
			return fmt.Errorf("list %ss: %w", kind, err)
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}

// unreservedRetryInterval is how long a network with an assignment that nobody has reserved
// waits for another look. A Pod that asks for it does not wait.
const unreservedRetryInterval = time.Minute

// sync brings the model of one network up to its watched metadata.
func (n *NetworkCache) sync(ctx context.Context, ref network.Ref) error {
	meta := kube.PartialMetadata(ref.Kind)
	if err := n.conn.Cache.Get(ctx, kube.ObjectKey(ref), meta); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read metadata of %s: %w", ref, err)
	} else if err != nil {
		return n.remove(ref)
	}
	if m, ok := n.models.get(ref); ok && m.Version == kube.SpecVersionOf(meta) {
		if m.Version.Deleting {
			n.onChange(ref) // somebody may just have stopped using it
		}
		return nil
	}
	m, err := n.fetch(ctx, ref)
	switch {
	case errors.Is(err, attach.ErrNotFound):
		return n.remove(ref)
	case err != nil:
		return err
	}
	if m.Err != nil {
		n.log.Info("Network is invalid", "network", ref.String(), "error", m.Err.Error())
	}
	if n.models.set(ref, m) {
		n.onChange(ref)
	}
	if m.Version == (kube.SpecVersion{}) {
		n.queue.AddAfter(ref, unreservedRetryInterval)
	}
	return nil
}

// remove forgets a network that does not exist any more.
func (n *NetworkCache) remove(ref network.Ref) error {
	if n.models.remove(ref) {
		n.onChange(ref)
	}
	return nil
}

// Ready reports whether all networks of the cluster have been read once.
func (n *NetworkCache) Ready() bool { return n.ready.Load() }

// List returns all valid networks, in no order. Who removes what no network
// asks for must wait until Ready.
func (n *NetworkCache) List() []*network.Network { return n.models.valid() }

// Get returns the model of a network as of the watched metadata; a network that
// the cache does not know is read, since it may have been made this second. The
// error wraps attach.ErrNotFound, attach.ErrTryAgain or says which field is wrong.
func (n *NetworkCache) Get(ctx context.Context, ref network.Ref) (*network.Network, error) {
	if m, ok := n.models.get(ref); ok && n.isCurrent(ctx, ref, m.Version) {
		return m.Network, m.Err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := n.fetch(ctx, ref)
	if err != nil {
		return nil, attachError(err)
	}
	// Not stored from here: only the queue's workers store, one at a time for
	// each network, so an older reading never replaces a newer one.
	n.queue.Add(ref)
	return m.Network, m.Err
}

// isCurrent reports whether the watched metadata is of this version.
func (n *NetworkCache) isCurrent(ctx context.Context, ref network.Ref, v kube.SpecVersion) bool {
	if !n.Ready() {
		return false
	}
	meta := kube.PartialMetadata(ref.Kind)
	err := n.conn.Cache.Get(ctx, kube.ObjectKey(ref), meta)
	return err == nil && kube.SpecVersionOf(meta) == v
}

// fetch gets the object from the API server.
func (n *NetworkCache) fetch(ctx context.Context, ref network.Ref) (kube.ParsedNetwork, error) {
	obj, err := kube.NewNetwork(ref.Kind)
	if err != nil {
		return kube.ParsedNetwork{}, err
	}
	switch err := n.conn.Direct.Get(ctx, kube.ObjectKey(ref), obj); {
	case apierrors.IsNotFound(err):
		return kube.ParsedNetwork{}, fmt.Errorf("get %s: %w", ref, attach.ErrNotFound)
	case err != nil:
		return kube.ParsedNetwork{}, fmt.Errorf("get %s: %w", ref, err)
	}
	m, err := n.confirmedModel(ctx, obj, time.Now())
	if err != nil {
		return m, err
	}
	n.onRead(obj, m.Network, m.Err)
	return m, nil
}

// confirmedModel says what a network object means that was read at that time. An assignment that nobody has reserved is
// not believed. Such a model has no version: the reservation may be there later (see
// webhook's sweeper) without a change of the network.
func (n *NetworkCache) confirmedModel(ctx context.Context, obj client.Object, read time.Time) (kube.ParsedNetwork, error) {
	m := kube.ParseNetwork(obj)
	ok, err := n.reservations.confirm(ctx, m.Network, read)
	if err != nil {
		return kube.ParsedNetwork{}, fmt.Errorf("confirm what %s/%s was assigned: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	if !ok {
		m.Network.Assignment = ""
		m.Version = kube.SpecVersion{}
	}
	return m, nil
}

// networkKey names one life of a network of a kind.
func networkKey(kind string, o client.Object) claims.Key {
	return claims.Key{Ref: kube.NetworkRefOf(kind, o), UID: string(o.GetUID())}
}
