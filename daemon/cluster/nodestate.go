// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/daemon/attach"
)

// Host is the node that DanmEps are of.
type Host struct {
	// Name and UID of the Node object.
	Name, UID string
}

// nodeTrust is how long a reading of the Node counts. The controller frees the
// unused addresses of a deleted Node 15 minutes after it went: the 5 between are
// for a claim under way, and for clocks that run apart.
const nodeTrust = 10 * time.Minute

// nodeEvery is the time between two readings, give or take a quarter. So addresses
// are handed out for at least 8 minutes after the API server went away.
const nodeEvery = 90 * time.Second

// ErrNodeReplaced says that this node's Node was deleted and made again. All that
// a daemon has written, and what it remembers of that, is the former Node's: the
// controller frees it, while the sandboxes still run. Only a start sorts that out,
// from the journal and what it reads then, so the daemon has to end.
var ErrNodeReplaced = errors.New("the Node was deleted and made again")

// NodeState is what is known of this node's Node object. It is read with quorum now
// and then, and watched, so that its end is known at once. Only the readings tell
// how fresh that knowledge is: bytes of a watch may have waited in a machine that
// slept, and any other answer of the API server says nothing about the Node.
type NodeState struct {
	conn   *Connection
	clocks clocks
	// synced says that from here on the watch tells of each change.
	synced func() bool
	host   atomic.Pointer[Host]
	// seen is when the last reading that found the Node was begun; nil when it is
	// gone, or none has.
	seen atomic.Pointer[moment]
	// gone says that the last reading found no Node.
	gone atomic.Bool
	// wake asks for a reading.
	wake chan struct{}
}

// WatchNode starts to watch this node's Node; Run reads it.
func WatchNode(ctx context.Context, conn *Connection) (*NodeState, error) {
	i, err := conn.Cache.GetInformer(ctx, metadata(nodeMeta()), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch Node %s: %w", conn.Node, err)
	}
	n := &NodeState{conn: conn, clocks: systemClocks(), synced: i.HasSynced, wake: make(chan struct{}, 1)}
	_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    n.watched,
		UpdateFunc: func(_, obj any) { n.watched(obj) },
		DeleteFunc: func(any) { n.doubt() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch Node %s: %w", conn.Node, err)
	}
	return n, nil
}

// Host is the Node for DanmEps; false until it was read.
func (n *NodeState) Host() (Host, bool) {
	if h := n.host.Load(); h != nil {
		return *h, true
	}
	return Host{}, false
}

// Gone reports whether the last reading found no Node.
func (n *NodeState) Gone() bool { return n.gone.Load() }

// Usable reports whether addresses that the node keeps ready may be handed out: the
// Node was there less than 10 minutes ago. It takes no lock and some 50 ns.
func (n *NodeState) Usable() bool {
	seen := n.seen.Load()
	return seen != nil && n.clocks.age(seen) < nodeTrust
}

// Run reads the Node until ctx ends, which is no error, or until it finds another
// one: ErrNodeReplaced.
func (n *NodeState) Run(ctx context.Context) error {
	go func() { // for what happened between the first reading and the watch
		if toolscache.WaitForCacheSync(ctx.Done(), n.synced) {
			n.ask()
		}
	}()
	for {
		var replaced error
		_ = Persist(ctx, func(ctx context.Context) error {
			err := n.confirm(ctx)
			if errors.Is(err, ErrNodeReplaced) {
				replaced, err = err, nil
			}
			return err
		})
		if replaced != nil {
			return replaced
		}
		select {
		case <-ctx.Done():
			return nil
		case <-n.wake:
		case <-time.After(nodeEvery*3/4 + rand.N(nodeEvery/2)):
		}
	}
}

// confirm reads the Node once.
func (n *NodeState) confirm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	begun, err := n.clocks.now() // whatever is answered was so after this
	if err != nil {
		return fmt.Errorf("read clock: %w", err)
	}
	uid, err := n.conn.NodeUID(ctx)
	known, ok := n.Host()
	switch {
	case errors.Is(err, attach.ErrNotFound) && ok:
		n.seen.Store(nil)
		if !n.gone.Swap(true) {
			logr.FromContextOrDiscard(ctx).Info("The Node is gone: no address is handed out that was kept ready", "node", n.conn.Node)
		}
		return nil
	case err != nil:
		return err
	case ok && uid != known.UID:
		n.seen.Store(nil)
		return fmt.Errorf("%w: Node %s had UID %s and has %s: the daemon ends, to be started for the new one",
			ErrNodeReplaced, n.conn.Node, known.UID, uid)
	}
	n.seen.Store(&begun)
	n.gone.Store(false)
	n.host.Store(&Host{Name: n.conn.Node, UID: uid})
	return nil
}

// watched takes note of the Node as a cache has it, which may be stale: what that
// means is for a reading to say.
func (n *NodeState) watched(obj any) {
	o, ok := obj.(client.Object)
	if h, known := n.Host(); ok && known && (string(o.GetUID()) != h.UID || n.seen.Load() == nil) {
		n.doubt()
	}
}

// doubt makes nothing usable until the next reading, and asks for that.
func (n *NodeState) doubt() {
	n.seen.Store(nil)
	n.ask()
}

// ask asks for a reading now.
func (n *NodeState) ask() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}
