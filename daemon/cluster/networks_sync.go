// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// networkWorkers read changed networks side by side.
const networkWorkers = 4

// unreservedAgain is how long a network with an assignment that nobody has reserved
// waits for another look. A Pod that asks for it does not wait.
const unreservedAgain = time.Minute

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
