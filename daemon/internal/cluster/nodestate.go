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

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// NodeIdentity is the node that DanmEps are of.
type NodeIdentity struct {
	// Name and UID of the Node object.
	Name, UID string
}

// nodeFreshFor is how long a reading of the Node counts. The controller frees the
// unused addresses of a deleted Node 15 minutes after it went: the 5 between are
// for a claim under way, and for clocks that run apart.
const nodeFreshFor = 10 * time.Minute

// nodeReadInterval is the time between two readings, give or take a quarter. So addresses
// are handed out for at least 8 minutes after the API server went away.
const nodeReadInterval = 90 * time.Second

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
	synced   func() bool
	identity atomic.Pointer[NodeIdentity]
	// lastSeen is when the last reading that found the Node was begun; nil when it is
	// gone, or none has.
	lastSeen atomic.Pointer[clockReading]
	// gone says that the last reading found no Node.
	gone atomic.Bool
	// readRequests asks for a reading.
	readRequests chan struct{}
}

// WatchNode starts to watch this node's Node; Run reads it.
func WatchNode(ctx context.Context, conn *Connection) (*NodeState, error) {
	i, err := conn.Cache.GetInformer(ctx, partialMetadata(nodeTypeMeta()), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch Node %s: %w", conn.Node, err)
	}
	n := &NodeState{conn: conn, clocks: systemClocks(), synced: i.HasSynced, readRequests: make(chan struct{}, 1)}
	_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    n.handleChange,
		UpdateFunc: func(_, obj any) { n.handleChange(obj) },
		DeleteFunc: func(any) { n.invalidate() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch Node %s: %w", conn.Node, err)
	}
	return n, nil
}

// Identity is the Node for DanmEps; false until it was read.
func (n *NodeState) Identity() (NodeIdentity, bool) {
	if h := n.identity.Load(); h != nil {
		return *h, true
	}
	return NodeIdentity{}, false
}

// Gone reports whether the last reading found no Node.
func (n *NodeState) Gone() bool { return n.gone.Load() }

// WarmPoolUsable reports whether addresses that the node keeps ready may be handed out: the
// Node was there less than 10 minutes ago. It takes no lock and some 50 ns.
func (n *NodeState) WarmPoolUsable() bool {
	seen := n.lastSeen.Load()
	return seen != nil && n.clocks.age(seen) < nodeFreshFor
}

// Run reads the Node until ctx ends, which is no error, or until it finds another
// one: ErrNodeReplaced.
func (n *NodeState) Run(ctx context.Context) error {
	go func() { // for what happened between the first reading and the watch
		if toolscache.WaitForCacheSync(ctx.Done(), n.synced) {
			n.requestRead()
		}
	}()
	for {
		var replaced error
		_ = RetryUntilSuccess(ctx, func(ctx context.Context) error {
			err := n.readNode(ctx)
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
		case <-n.readRequests:
		case <-time.After(nodeReadInterval*3/4 + rand.N(nodeReadInterval/2)):
		}
	}
}

// readNode reads the Node once.
func (n *NodeState) readNode(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	begun, err := n.clocks.read() // whatever is answered was so after this
	if err != nil {
		return fmt.Errorf("read clock: %w", err)
	}
	uid, err := n.conn.NodeUID(ctx)
	known, ok := n.Identity()
	switch {
	case errors.Is(err, attach.ErrNotFound) && ok:
		n.lastSeen.Store(nil)
		if !n.gone.Swap(true) {
			logr.FromContextOrDiscard(ctx).Info("The Node is gone: no address is handed out that was kept ready", "node", n.conn.Node)
		}
		return nil
	case err != nil:
		return err
	case ok && uid != known.UID:
		n.lastSeen.Store(nil)
		return fmt.Errorf("%w: Node %s had UID %s and has %s: the daemon ends, to be started for the new one",
			ErrNodeReplaced, n.conn.Node, known.UID, uid)
	}
	n.lastSeen.Store(&begun)
	n.gone.Store(false)
	n.identity.Store(&NodeIdentity{Name: n.conn.Node, UID: uid})
	return nil
}

// handleChange takes note of the Node as a cache has it, which may be stale: what that
// means is for a reading to say.
func (n *NodeState) handleChange(obj any) {
	o, ok := obj.(client.Object)
	if h, known := n.Identity(); ok && known && (string(o.GetUID()) != h.UID || n.lastSeen.Load() == nil) {
		n.invalidate()
	}
}

// invalidate makes nothing usable until the next reading, and asks for that.
func (n *NodeState) invalidate() {
	n.lastSeen.Store(nil)
	n.requestRead()
}

// requestRead asks for a reading now.
func (n *NodeState) requestRead() {
	select {
	case n.readRequests <- struct{}{}:
	default:
	}
}
