// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

const (
	// reclaimInterval is how often the nodes are asked to release addresses of one network.
	reclaimInterval = 5 * time.Second
	// reclaimDelay is how long the write waits, so that the rejection reaches the API server first.
	// An earlier write would make the API server call admission again, or a PUT fail with a
	// conflict instead.
	reclaimDelay = 300 * time.Millisecond
	// reclaimTimeout bounds one write.
	reclaimTimeout = 5 * time.Second
	// reclaimQueueSize bounds the networks that wait. A rejected user tries again.
	reclaimQueueSize = 100
)

// reclaimRequester requests that nodes release the pre-allocated addresses of a network, as a node
// does that finds its pool exhausted: they release them within seconds, and pre-allocate none for a
// minute. The status has no webhook and no generation, so the write disturbs no one else.
//
// It writes with the controller's rights, so it uses nothing of the request but which network it is
// about. A forged request (see servingcert.Rotator.RequireToken) can cause nothing else.
type reclaimRequester struct {
	client client.Client
	log    logr.Logger
	queue  chan reclaimRequest

	mu     sync.Mutex
	queued map[types.UID]struct{} // those in queue
}

// reclaimRequest is a network and its UID.
type reclaimRequest struct {
	ref network.Ref
	uid types.UID
}

func newReclaimRequester(c client.Client, log logr.Logger) *reclaimRequester {
	return &reclaimRequester{client: c, log: log, queue: make(chan reclaimRequest, reclaimQueueSize), queued: map[types.UID]struct{}{}}
}

// enqueue queues a network whose change only pre-allocated addresses forbid. It never blocks, and
// drops a network that is queued already or has no UID.
func (p *reclaimRequester) enqueue(obj client.Object) {
	kind, ok := kube.NetworkKindOf(obj)
	uid := obj.GetUID()
	if !ok || uid == "" || !reclaimDue(obj, time.Now()) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, queued := p.queued[uid]; queued {
		return
	}
	select {
	case p.queue <- reclaimRequest{kube.NetworkRefOf(kind, obj), uid}:
		p.queued[uid] = struct{}{}
	default:
	}
}

// reclaimDue reports whether nodes hold pre-allocated addresses of a network, and were not asked
// just now.
func reclaimDue(obj client.Object, now time.Time) bool {
	status := kube.NetworkStatusOf(obj)
	if len(preallocatedUses(status)) == 0 {
		return false
	}
	last := status.IPAM.ReclaimRequestTime
	return last == nil || now.Sub(last.Time).Abs() >= reclaimInterval
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica asks for the requests
// that it rejected.
func (p *reclaimRequester) NeedLeaderElection() bool { return false }

// Start runs until ctx ends.
func (p *reclaimRequester) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case next := <-p.queue:
			if !sleep(ctx, reclaimDelay) {
				return nil
			}
			p.mu.Lock()
			delete(p.queued, next.uid)
			p.mu.Unlock()
			if err := p.requestReclaim(ctx, next, time.Now()); err != nil && ctx.Err() == nil {
				p.log.Error(err, "Failed to request that nodes release addresses", "network", next.ref.String())
			}
		}
	}
}

// requestReclaim reads the network, and writes the request if it still is the same object and the
// request is due.
func (p *reclaimRequester) requestReclaim(ctx context.Context, r reclaimRequest, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, reclaimTimeout)
	defer cancel()
	obj, err := kube.NewNetwork(r.ref.Kind)
	if err != nil {
		return err
	}
	if err := p.client.Get(ctx, kube.ObjectKey(r.ref), obj); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get %s: %w", r.ref, err)
	}
	if r.uid == "" || obj.GetUID() != r.uid || !reclaimDue(obj, now) {
		return nil // it was deleted, or is another network of the same name
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": r.uid},
		"status":   map[string]any{"ipam": map[string]any{"reclaimRequestTime": metav1.NewMicroTime(now)}},
	})
	if err != nil {
		return fmt.Errorf("encode status.ipam.reclaimRequestTime: %w", err)
	}
	err = p.client.Status().Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status.ipam.reclaimRequestTime: %w", err)
	}
	return nil
}
