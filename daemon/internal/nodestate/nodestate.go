// SPDX-License-Identifier: Apache-2.0

package nodestate

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
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
)

// Identity is the name and the UID of a Node object.
type Identity struct {
	Name, UID string
}

// nodeFreshFor is how long a read of the Node counts. The controller frees the unused
// addresses of a deleted Node 15 minutes after the deletion. The 5 minutes between them
// cover a claim in flight and clocks that run at different speeds.
const nodeFreshFor = 10 * time.Minute

// nodeReadInterval is the mean time between two reads, with a jitter of a quarter. The
// warm pool therefore stays usable for at least 8 minutes after the API server became
// unreachable.
const nodeReadInterval = 90 * time.Second

// ErrNodeReplaced reports that this node's Node was deleted and created again. All entries
// and DanmEps that the daemon wrote belong to the former Node, and the controller frees
// them while the sandboxes still run. The daemon must exit: its next start resumes from the
// journal for the new Node.
var ErrNodeReplaced = errors.New("the Node was deleted and created again")

// NodeState tracks this node's Node object. It reads the Node with quorum at intervals, and
// watches it to notice a deletion at once. Only reads prove that the Node existed at a
// time: a suspended machine may receive events of the watch long after they were sent.
type NodeState struct {
	conn   *kubeclient.Connection
	clocks clocks
	// synced reports whether the watch delivers all further changes.
	synced   func() bool
	identity atomic.Pointer[Identity]
	// lastSeen is when the last read that found the Node began. It is nil when the Node is
	// gone, or no read has found it yet.
	lastSeen atomic.Pointer[clockReading]
	// gone is true when the last read found no Node.
	gone atomic.Bool
	// readRequests asks Run for a read.
	readRequests chan struct{}
}

// WatchNode starts a watch of this node's Node. Run reads the Node.
func WatchNode(ctx context.Context, conn *kubeclient.Connection) (*NodeState, error) {
	i, err := conn.Cache.GetInformer(ctx, kubeclient.NodeMetadata(), cache.BlockUntilSynced(false))
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

// Identity returns the identity of the Node, and false before the first read found it.
func (n *NodeState) Identity() (Identity, bool) {
	if id := n.identity.Load(); id != nil {
		return *id, true
	}
	return Identity{}, false
}

// Gone reports whether the last read found no Node.
func (n *NodeState) Gone() bool { return n.gone.Load() }

// WarmPoolUsable reports whether the daemon may hand out pre-allocated addresses: a read
// found the Node less than 10 minutes ago. It takes no lock and about 50 ns.
func (n *NodeState) WarmPoolUsable() bool {
	seen := n.lastSeen.Load()
	return seen != nil && n.clocks.age(seen) < nodeFreshFor
}

// Run reads the Node until ctx ends, and then returns nil. It returns ErrNodeReplaced when
// a read finds another Node of the same name.
func (n *NodeState) Run(ctx context.Context) error {
	go func() { // a change between the first read and the watch delivers no event
		if toolscache.WaitForCacheSync(ctx.Done(), n.synced) {
			n.requestRead()
		}
	}()
	for {
		var replaced error
		_ = kubeclient.RetryUntilSuccess(ctx, func(ctx context.Context) error {
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
	ctx, cancel := context.WithTimeout(ctx, kubeclient.RequestTimeout)
	defer cancel()
	begun, err := n.clocks.read() // before the request: the answer is true for a later time
	if err != nil {
		return fmt.Errorf("read clock: %w", err)
	}
	uid, err := n.conn.NodeUID(ctx)
	known, ok := n.Identity()
	switch {
	case errors.Is(err, attach.ErrNotFound) && ok:
		n.lastSeen.Store(nil)
		if !n.gone.Swap(true) {
			logr.FromContextOrDiscard(ctx).Info("Node is gone, stopped handing out addresses of the warm pool", "node", n.conn.Node)
		}
		return nil
	case err != nil:
		return err
	case ok && uid != known.UID:
		n.lastSeen.Store(nil)
		return fmt.Errorf("%w: Node %s has UID %s, before it had UID %s: the daemon must restart",
			ErrNodeReplaced, n.conn.Node, uid, known.UID)
	}
	n.lastSeen.Store(&begun)
	n.gone.Store(false)
	n.identity.Store(&Identity{Name: n.conn.Node, UID: uid})
	return nil
}

// handleChange requests a read when the cached Node, which may be stale, differs from the
// last read.
func (n *NodeState) handleChange(obj any) {
	o, ok := obj.(client.Object)
	if id, known := n.Identity(); ok && known && (string(o.GetUID()) != id.UID || n.lastSeen.Load() == nil) {
		n.invalidate()
	}
}

// invalidate makes the warm pool unusable until the next read, and requests that read.
func (n *NodeState) invalidate() {
	n.lastSeen.Store(nil)
	n.requestRead()
}

// requestRead makes Run read the Node now.
func (n *NodeState) requestRead() {
	select {
	case n.readRequests <- struct{}{}:
	default:
	}
}
