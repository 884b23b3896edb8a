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
	// reclaimInterval is how often the nodes are asked about one network.
	reclaimInterval = 5 * time.Second
	// reclaimDelay is how long the refusal has to reach the API server. A write before
	// that would make it ask again, or tell a PUT of a conflict instead.
	reclaimDelay = 300 * time.Millisecond
	// reclaimTimeout bounds one write.
	reclaimTimeout = 5 * time.Second
	// reclaimQueueSize bounds how many networks wait. A user who is refused tries again.
	reclaimQueueSize = 100
)

// reclaimRequester asks nodes to give back what they hold of a network for Pods to come, as a
// node does that finds its pool exhausted: they do within seconds, and hold nothing
// for a minute. Status has no webhook and no generation, so nobody else is disturbed.
//
// It writes with the controller's rights, so it takes nothing from the request but which
// network it is about: whoever made that up (see cert.Keeper.Guard) gets nothing else.
type reclaimRequester struct {
	client client.Client
	log    logr.Logger
	queue  chan reclaimRequest

	mu     sync.Mutex
	queued map[types.UID]struct{} // those in queue
}

// reclaimRequest is one life of a network.
type reclaimRequest struct {
	ref network.Ref
	uid types.UID
}

func newReclaimRequester(c client.Client, log logr.Logger) *reclaimRequester {
	return &reclaimRequester{client: c, log: log, queue: make(chan reclaimRequest, reclaimQueueSize), queued: map[types.UID]struct{}{}}
}

// enqueue notes a network whose change only such addresses are in the way of; it never
// blocks. One that waits already, or has no UID, is not noted.
func (p *reclaimRequester) enqueue(obj client.Object) {
	kind, ok := kube.NetworkKindOf(obj)
	uid := obj.GetUID()
	if !ok || uid == "" || !reclaimDue(obj, time.Now()) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, waits := p.queued[uid]; waits {
		return
	}
	select {
	case p.queue <- reclaimRequest{kube.NetworkRefOf(kind, obj), uid}:
		p.queued[uid] = struct{}{}
	default:
	}
}

// reclaimDue reports whether nodes hold addresses of a network and were not asked just now.
func reclaimDue(obj client.Object, now time.Time) bool {
	status := kube.NetworkStatusOf(obj)
	if len(preallocatedUses(status)) == 0 {
		return false
	}
	last := status.IPAM.ReclaimRequestTime
	return last == nil || now.Sub(last.Time).Abs() >= reclaimInterval
}

// NeedLeaderElection says that every replica asks for what it refused.
func (p *reclaimRequester) NeedLeaderElection() bool { return false }

// Start works until ctx ends.
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
				p.log.Error(err, "Ask the nodes to give back what they hold", "network", next.ref.String())
			}
		}
	}
}

// requestReclaim reads the network and asks, if that is still the one and there is a reason to.
func (p *reclaimRequester) requestReclaim(ctx context.Context, which reclaimRequest, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, reclaimTimeout)
	defer cancel()
	obj, err := kube.NewNetwork(which.ref.Kind)
	if err != nil {
		return err
	}
	if err := p.client.Get(ctx, kube.ObjectKey(which.ref), obj); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get %s: %w", which.ref, err)
	}
	if which.uid == "" || obj.GetUID() != which.uid || !reclaimDue(obj, now) {
		return nil // it is gone, or another of its name
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": which.uid},
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
