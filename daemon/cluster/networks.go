// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
