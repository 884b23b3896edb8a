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

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// Networks are the models of all network objects. Metadata is watched; an
// object is read when its version differs from the model at hand.
type Networks struct {
	conn    *Connection
	log     logr.Logger
	models  models
	queue   workqueue.TypedRateLimitingInterface[network.Ref]
	ready   atomic.Bool
	watched func(network.Ref)
	moves   Moves
	// recoveries are since when the networks recover that this node was told of, by
	// claims.Key.
	recoveries sync.Map
	seen       func(client.Object, *network.Network, error)
	reserved   *reservations
}

// Moves is told what is watched of networks, in order. Its methods must not block.
type Moves interface {
	// Look says that a network's metadata is at that resourceVersion.
	Look(net claims.Key, resourceVersion string)
	// Gone says that there is no such network any more.
	Gone(net claims.Key)
	// Reassert says that the network has begun to recover: this node is to report
	// what it has of it, be it nothing.
	Reassert(net claims.Key)
}

// NetworksOptions are those who are told of networks.
type NetworksOptions struct {
	// Changed is called after a network was added, changed or removed; it must
	// not block. It may be nil.
	Changed func(network.Ref)
	// Moves is told of each change of a network's metadata, those that come with a
	// write of its status, too. It may be nil.
	Moves Moves
	// Read is called with each object that was read in full, its model, or what
	// is wrong with it; it must not block. It may be nil.
	Read func(client.Object, *network.Network, error)
}

// NewNetworks returns an empty set of models; Run fills it.
func NewNetworks(conn *Connection, log logr.Logger, opts NetworksOptions) *Networks {
	n := &Networks{
		conn: conn, log: log,
		models:   models{m: map[network.Ref]objects.Model{}},
		queue:    newQueue[network.Ref](),
		watched:  func(network.Ref) {},
		moves:    opts.Moves,
		seen:     func(client.Object, *network.Network, error) {},
		reserved: &reservations{conn: conn},
	}
	if opts.Changed != nil {
		n.watched = opts.Changed
	}
	if opts.Read != nil {
		n.seen = opts.Read
	}
	return n
}

// networkWorkers read changed networks side by side.
const networkWorkers = 4

// Run watches the networks until ctx ends, which is no error or that of ctx. It
// waits for the API server.
func (n *Networks) Run(ctx context.Context) error {
	var informers []cache.Informer
	for _, kind := range objects.Kinds() {
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
	if err := Persist(ctx, n.prime); err != nil {
		return err
	}
	n.ready.Store(true)
	n.watched(network.Ref{})
	work(ctx, n.queue, networkWorkers, n.sync)
	return nil
}

// watch queues each network of a kind whose metadata changes.
func (n *Networks) watch(ctx context.Context, kind string) (cache.Informer, error) {
	i, err := n.conn.Cache.GetInformer(ctx, objects.Metadata(kind), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, watchError(ctx, kind, err)
	}
	_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { n.event(kind, obj) },
		UpdateFunc: func(_, obj any) { n.event(kind, obj) },
		DeleteFunc: func(obj any) { n.removed(kind, obj) },
	})
	if err != nil {
		return nil, watchError(ctx, kind, err)
	}
	return i, nil
}

// event queues a network, and says where its metadata is.
func (n *Networks) event(kind string, obj any) {
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	n.queue.Add(objects.RefOf(kind, o))
	if n.moves == nil {
		return
	}
	net := keyOf(kind, o)
	n.moves.Look(net, o.GetResourceVersion())
	since := o.GetAnnotations()[v1.RecoveringAnnotation]
	if since == "" {
		n.recoveries.Delete(net)
	} else if last, _ := n.recoveries.Swap(net, since); last != since {
		n.moves.Reassert(net)
	}
}

// removed queues a network that was deleted, and says so.
func (n *Networks) removed(kind string, obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	n.queue.Add(objects.RefOf(kind, o))
	n.recoveries.Delete(keyOf(kind, o))
	if n.moves != nil {
		n.moves.Gone(keyOf(kind, o))
	}
}

// primePage is how many networks are in memory in full at a time: each may
// carry a bitmap of 11 KiB.
const primePage = 100

// prime reads all networks once, in pages, instead of one by one as their
// metadata arrives. One whose assignment cannot be confirmed now, since a TenantConfig
// is damaged or not served, is left to the queue's workers: the others need not wait.
func (n *Networks) prime(ctx context.Context) error {
	return n.each(ctx, func(obj client.Object, ref network.Ref, read time.Time) {
		m, err := n.modelOf(ctx, obj, read)
		if err != nil {
			n.queue.Add(ref)
			m = objects.ModelOf(obj)
		} else {
			n.models.set(ref, m)
		}
		n.seen(obj, m.Network, m.Err)
	})
}

// Reread reads all networks, for those who look into objects. The models are left to
// the queue's workers: one of these may be older than what they have.
func (n *Networks) Reread(ctx context.Context) error {
	return n.each(ctx, func(obj client.Object, _ network.Ref, _ time.Time) {
		m := objects.ModelOf(obj)
		n.seen(obj, m.Network, m.Err)
	})
}

// visit takes one network that was read at that time.
type visit func(obj client.Object, ref network.Ref, read time.Time)

// each reads all networks in pages.
func (n *Networks) each(ctx context.Context, do visit) error {
	for _, kind := range objects.Kinds() {
		if err := n.eachOf(ctx, kind, do); err != nil {
			return err
		}
	}
	return nil
}

// eachOf reads all objects of one kind.
func (n *Networks) eachOf(ctx context.Context, kind string, do visit) error {
	for next := ""; ; {
		// Each page gets a list of its own. Decoding JSON into a used one leaves what the
		// object before had in the same place, where this one has nothing; only
		// controller-runtime's own decoder empties it first.
		list, err := objects.NewList(kind)
		if err != nil {
			return err
		}
		if err := n.conn.Direct.List(ctx, list, client.Limit(primePage), client.Continue(next)); err != nil {
			return fmt.Errorf("list %ss: %w", kind, err)
		}
		read := time.Now()
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			obj, ok := item.(client.Object)
			if !ok {
				return errors.New("list item is no object")
			}
			do(obj, objects.RefOf(kind, obj), read)
			return nil
		}); err != nil {
			return fmt.Errorf("list %ss: %w", kind, err)
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}

// unreservedAgain is how long a network with an assignment that nobody has reserved
// waits for another look. A Pod that asks for it does not wait.
const unreservedAgain = time.Minute

// sync brings the model of one network up to its watched metadata.
func (n *Networks) sync(ctx context.Context, ref network.Ref) error {
	meta := objects.Metadata(ref.Kind)
	if err := n.conn.Cache.Get(ctx, objects.Key(ref), meta); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read metadata of %s: %w", ref, err)
	} else if err != nil {
		return n.drop(ref)
	}
	if m, ok := n.models.get(ref); ok && m.Version == objects.VersionOf(meta) {
		if m.Version.Deleting {
			n.watched(ref) // somebody may just have stopped using it
		}
		return nil
	}
	m, err := n.read(ctx, ref)
	switch {
	case errors.Is(err, attach.ErrNotFound):
		return n.drop(ref)
	case err != nil:
		return err
	}
	if m.Err != nil {
		n.log.Info("Network is invalid", "network", ref.String(), "error", m.Err.Error())
	}
	if n.models.set(ref, m) {
		n.watched(ref)
	}
	if m.Version == (objects.Version{}) {
		n.queue.AddAfter(ref, unreservedAgain)
	}
	return nil
}

// drop forgets a network that does not exist any more.
func (n *Networks) drop(ref network.Ref) error {
	if n.models.remove(ref) {
		n.watched(ref)
	}
	return nil
}

// Ready reports whether all networks of the cluster have been read once.
func (n *Networks) Ready() bool { return n.ready.Load() }

// List returns all valid networks, in no order. Who removes what no network
// asks for must wait until Ready.
func (n *Networks) List() []*network.Network { return n.models.valid() }

// Get returns the model of a network as of the watched metadata; a network that
// the cache does not know is read, since it may have been made this second. The
// error wraps attach.ErrNotFound, attach.ErrTryAgain or says which field is wrong.
func (n *Networks) Get(ctx context.Context, ref network.Ref) (*network.Network, error) {
	if m, ok := n.models.get(ref); ok && n.current(ctx, ref, m.Version) {
		return m.Network, m.Err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := n.read(ctx, ref)
	if err != nil {
		return nil, portError(err)
	}
	// Not stored from here: only the queue's workers store, one at a time for
	// each network, so an older reading never replaces a newer one.
	n.queue.Add(ref)
	return m.Network, m.Err
}

// current reports whether the watched metadata is of this version.
func (n *Networks) current(ctx context.Context, ref network.Ref, v objects.Version) bool {
	if !n.Ready() {
		return false
	}
	meta := objects.Metadata(ref.Kind)
	err := n.conn.Cache.Get(ctx, objects.Key(ref), meta)
	return err == nil && objects.VersionOf(meta) == v
}

// read gets the object from the API server.
func (n *Networks) read(ctx context.Context, ref network.Ref) (objects.Model, error) {
	obj, err := objects.New(ref.Kind)
	if err != nil {
		return objects.Model{}, err
	}
	switch err := n.conn.Direct.Get(ctx, objects.Key(ref), obj); {
	case apierrors.IsNotFound(err):
		return objects.Model{}, fmt.Errorf("get %s: %w", ref, attach.ErrNotFound)
	case err != nil:
		return objects.Model{}, fmt.Errorf("get %s: %w", ref, err)
	}
	m, err := n.modelOf(ctx, obj, time.Now())
	if err != nil {
		return m, err
	}
	n.seen(obj, m.Network, m.Err)
	return m, nil
}

// modelOf says what a network object means that was read at that time. An assignment that nobody has reserved is
// not believed. Such a model has no version: the reservation may be there later (see
// webhook's sweeper) without a change of the network.
func (n *Networks) modelOf(ctx context.Context, obj client.Object, read time.Time) (objects.Model, error) {
	m := objects.ModelOf(obj)
	ok, err := n.reserved.confirm(ctx, m.Network, read)
	if err != nil {
		return objects.Model{}, fmt.Errorf("confirm what %s/%s was assigned: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	if !ok {
		m.Network.Assignment = ""
		m.Version = objects.Version{}
	}
	return m, nil
}

// keyOf names one life of a network of a kind.
func keyOf(kind string, o client.Object) claims.Key {
	return claims.Key{Ref: objects.RefOf(kind, o), UID: string(o.GetUID())}
}
