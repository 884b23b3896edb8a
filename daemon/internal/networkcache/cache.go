// SPDX-License-Identifier: Apache-2.0

package networkcache

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

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Cache has the models of all network objects (ClusterNetworks, TenantNetworks, DanmNets).
// It watches metadata, and reads an object when its version differs from the model's.
type Cache struct {
	conn         *kubeclient.Connection
	log          logr.Logger
	models       networkModels
	queue        workqueue.TypedRateLimitingInterface[network.Ref]
	loaded       atomic.Bool
	onChange     func(network.Ref)
	onRead       ReadFunc
	notifier     observerNotifier
	reservations reservationCache
}

// ReadFunc receives a network that was read in full, and either its model or the error that
// names its invalid field. It must not block.
type ReadFunc func(client.Object, *network.Network, error)

// Options has the receivers of a Cache's events. Each may be nil.
type Options struct {
	// OnChange is called after a network was added, changed or deleted, and once with an
	// empty reference when all networks are loaded. It must not block.
	OnChange func(network.Ref)
	// Observer receives each change of a network's metadata, including changes that come
	// from writes of its status.
	Observer Observer
	// OnRead is called with each object that the Cache reads in full.
	OnRead ReadFunc
}

// New returns an empty Cache. Run fills it.
func New(conn *kubeclient.Connection, log logr.Logger, opts Options) *Cache {
	c := &Cache{
		conn: conn, log: log,
		models:       networkModels{byRef: map[network.Ref]kube.ParsedNetwork{}},
		queue:        kubeclient.NewQueue[network.Ref](),
		onChange:     func(network.Ref) {},
		onRead:       func(client.Object, *network.Network, error) {},
		notifier:     observerNotifier{observer: opts.Observer},
		reservations: reservationCache{conn: conn},
	}
	if opts.OnChange != nil {
		c.onChange = opts.OnChange
	}
	if opts.OnRead != nil {
		c.onRead = opts.OnRead
	}
	return c
}

// syncWorkers is how many changed networks are read at a time.
const syncWorkers = 4

// Run watches the networks until ctx ends. It retries until the API server answers. It
// returns nil or the error of ctx when ctx ends.
func (c *Cache) Run(ctx context.Context) error {
	var informers []cache.Informer
	for _, kind := range kube.NetworkKinds() {
		i, err := c.watch(ctx, kind)
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
	if err := kubeclient.RetryUntilSuccess(ctx, c.loadAll); err != nil {
		return err
	}
	c.loaded.Store(true)
	c.onChange(network.Ref{})
	kubeclient.RunWorkers(ctx, c.queue, syncWorkers, c.sync)
	return nil
}

// watch starts an informer that queues each network of a kind whose metadata changes.
func (c *Cache) watch(ctx context.Context, kind string) (cache.Informer, error) {
	i, err := c.conn.Cache.GetInformer(ctx, kube.PartialMetadata(kind), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, kubeclient.WatchError(ctx, kind, err)
	}
	_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.handleChange(kind, obj) },
		UpdateFunc: func(_, obj any) { c.handleChange(kind, obj) },
		DeleteFunc: func(obj any) { c.handleDelete(kind, obj) },
	})
	if err != nil {
		return nil, kubeclient.WatchError(ctx, kind, err)
	}
	return i, nil
}

// handleChange queues a network that was added or changed, and notifies the observer.
func (c *Cache) handleChange(kind string, obj any) {
	if o, ok := obj.(client.Object); ok {
		c.queue.Add(kube.NetworkRefOf(kind, o))
		c.notifier.networkChanged(networkKey(kind, o), o)
	}
}

// handleDelete queues a network that was deleted, and notifies the observer.
func (c *Cache) handleDelete(kind string, obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if o, ok := obj.(client.Object); ok {
		c.queue.Add(kube.NetworkRefOf(kind, o))
		c.notifier.networkDeleted(networkKey(kind, o))
	}
}

// loadAll reads all networks once, in pages, which takes fewer requests than one read per
// event. When the reservation of a network cannot be confirmed, because a TenantConfig is
// invalid or not served, loadAll leaves this network to the workers and loads the others.
func (c *Cache) loadAll(ctx context.Context) error {
	return c.forEach(ctx, func(obj client.Object, ref network.Ref, readAt time.Time) {
		m, err := c.confirmedModel(ctx, obj, readAt)
		if err != nil {
			c.queue.Add(ref)
			m = kube.ParseNetwork(obj)
		} else {
			c.models.set(ref, m)
		}
		c.onRead(obj, m.Network, m.Err)
	})
}

// ReadAll reads all networks and calls OnRead with each. It stores no model: the workers may
// have stored a newer one.
func (c *Cache) ReadAll(ctx context.Context) error {
	return c.forEach(ctx, func(obj client.Object, _ network.Ref, _ time.Time) {
		m := kube.ParseNetwork(obj)
		c.onRead(obj, m.Network, m.Err)
	})
}

// visitFunc receives one network, and the time at which it was read.
type visitFunc func(obj client.Object, ref network.Ref, readAt time.Time)

// forEach reads all networks of all kinds.
func (c *Cache) forEach(ctx context.Context, visit visitFunc) error {
	for _, kind := range kube.NetworkKinds() {
		if err := c.forEachOfKind(ctx, kind, visit); err != nil {
			return err
		}
	}
	return nil
}

// listPageSize is how many networks are in memory at a time during a list. The status of each
// may have a bitmap of 11 KiB.
const listPageSize = 100

// forEachOfKind reads all networks of one kind, page by page.
func (c *Cache) forEachOfKind(ctx context.Context, kind string, visit visitFunc) error {
	for next := ""; ; {
		// Each page needs a new list. Decoding JSON into a used list keeps the fields that the
		// new object lacks from the old object in the same position. Only controller-runtime's
		// own decoder clears them.
		list, err := kube.NewNetworkList(kind)
		if err != nil {
			return err
		}
		if err := c.conn.Direct.List(ctx, list, client.Limit(listPageSize), client.Continue(next)); err != nil {
			return fmt.Errorf("list %ss: %w", kind, err)
		}
		readAt := time.Now()
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			obj, ok := item.(client.Object)
			if !ok {
				return errors.New("list item must be an object")
			}
			visit(obj, kube.NetworkRefOf(kind, obj), readAt)
			return nil
		}); err != nil {
			return fmt.Errorf("list %ss: %w", kind, err)
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}

// unreservedRetryInterval is how long a network whose assignment no TenantConfig confirms
// waits for the next check. A Pod that requests the network triggers a check at once.
const unreservedRetryInterval = time.Minute

// sync updates the model of one network to its watched metadata.
func (c *Cache) sync(ctx context.Context, ref network.Ref) error {
	metadata := kube.PartialMetadata(ref.Kind)
	if err := c.conn.Cache.Get(ctx, kube.ObjectKey(ref), metadata); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read metadata of %s: %w", ref, err)
	} else if err != nil {
		return c.remove(ref)
	}
	if m, ok := c.models.get(ref); ok && m.Version == kube.SpecVersionOf(metadata) {
		if m.Version.Deleting {
			c.onChange(ref) // the last user of its link may be gone now
		}
		return nil
	}
	m, err := c.fetch(ctx, ref)
	switch {
	case errors.Is(err, attach.ErrNotFound):
		return c.remove(ref)
	case err != nil:
		return err
	}
	if m.Err != nil {
		c.log.Info("Network is invalid", "network", ref.String(), "error", m.Err.Error())
	}
	if c.models.set(ref, m) {
		c.onChange(ref)
	}
	if m.Version == (kube.SpecVersion{}) {
		c.queue.AddAfter(ref, unreservedRetryInterval)
	}
	return nil
}

// remove deletes the model of a network that does not exist any more.
func (c *Cache) remove(ref network.Ref) error {
	if c.models.remove(ref) {
		c.onChange(ref)
	}
	return nil
}

// Ready reports whether all networks of the cluster have been read once.
func (c *Cache) Ready() bool { return c.loaded.Load() }

// List returns all valid networks, in no order. A caller that removes links without a network
// must wait until Ready.
func (c *Cache) List() []*network.Network { return c.models.valid() }

// Known returns a valid network that the cache has, which may be behind the API server; nil for another
// one.
func (c *Cache) Known(ref network.Ref) *network.Network {
	m, _ := c.models.get(ref)
	if m.Err != nil {
		return nil
	}
	return m.Network
}

// Get returns the model of a network as of the watched metadata. It reads a network that the
// cache does not have from the API server, because the network may be newer than the cache.
// The error wraps attach.ErrNotFound or attach.ErrTryAgain, or names the invalid field.
func (c *Cache) Get(ctx context.Context, ref network.Ref) (*network.Network, error) {
	if m, ok := c.models.get(ref); ok && c.isCurrent(ctx, ref, m.Version) {
		return m.Network, m.Err
	}
	ctx, cancel := context.WithTimeout(ctx, kubeclient.RequestTimeout)
	defer cancel()
	m, err := c.fetch(ctx, ref)
	if err != nil {
		return nil, kubeclient.AttachError(err)
	}
	// Only workers store models, one at a time for each network. An older read therefore
	// never replaces a newer one.
	c.queue.Add(ref)
	return m.Network, m.Err
}

// isCurrent reports whether the watched metadata has this version.
func (c *Cache) isCurrent(ctx context.Context, ref network.Ref, v kube.SpecVersion) bool {
	if !c.Ready() {
		return false
	}
	metadata := kube.PartialMetadata(ref.Kind)
	err := c.conn.Cache.Get(ctx, kube.ObjectKey(ref), metadata)
	return err == nil && kube.SpecVersionOf(metadata) == v
}

// fetch reads the network from the API server and returns its model.
func (c *Cache) fetch(ctx context.Context, ref network.Ref) (kube.ParsedNetwork, error) {
	obj, err := kube.NewNetwork(ref.Kind)
	if err != nil {
		return kube.ParsedNetwork{}, err
	}
	switch err := c.conn.Direct.Get(ctx, kube.ObjectKey(ref), obj); {
	case apierrors.IsNotFound(err):
		return kube.ParsedNetwork{}, fmt.Errorf("get %s: %w", ref, c.conn.NotFoundError(ctx, ref.Kind, err))
	case err != nil:
		return kube.ParsedNetwork{}, fmt.Errorf("get %s: %w", ref, err)
	}
	m, err := c.confirmedModel(ctx, obj, time.Now())
	if err != nil {
		return m, err
	}
	c.onRead(obj, m.Network, m.Err)
	return m, nil
}

// confirmedModel returns the model of a network that was read at that time. It drops an
// assignment that no TenantConfig confirms. The model then has no version, because the
// admission webhook may add the reservation later without a change of the network.
func (c *Cache) confirmedModel(ctx context.Context, obj client.Object, readAt time.Time) (kube.ParsedNetwork, error) {
	m := kube.ParseNetwork(obj)
	ok, err := c.reservations.confirm(ctx, m.Network, readAt)
	if err != nil {
		// The network exists, also when the API server does not serve TenantConfigs.
		return kube.ParsedNetwork{}, fmt.Errorf("confirm the assignment of %s/%s: %w: %w", obj.GetNamespace(), obj.GetName(), attach.ErrTryAgain, err)
	}
	if !ok {
		m.Network.Assignment = ""
		m.Version = kube.SpecVersion{}
	}
	return m, nil
}

// networkModels has the newest model of each network. It is safe for concurrent use.
type networkModels struct {
	mu    sync.RWMutex
	byRef map[network.Ref]kube.ParsedNetwork
}

// get returns the model of a network, and false when there is none.
func (s *networkModels) get(ref network.Ref) (kube.ParsedNetwork, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m, ok := s.byRef[ref]
	return m, ok
}

// set stores a model and reports whether it differs from the previous one.
func (s *networkModels) set(ref network.Ref, m kube.ParsedNetwork) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.byRef[ref]
	s.byRef[ref] = m
	return !ok || old.Version != m.Version
}

// remove deletes a model and reports whether there was one.
func (s *networkModels) remove(ref network.Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.byRef[ref]
	delete(s.byRef, ref)
	return ok
}

// valid returns the models without an error, in no order.
func (s *networkModels) valid() []*network.Network {
	s.mu.RLock()
	defer s.mu.RUnlock()
	nets := make([]*network.Network, 0, len(s.byRef))
	for _, m := range s.byRef {
		if m.Err == nil {
			nets = append(nets, m.Network)
		}
	}
	return nets
}
