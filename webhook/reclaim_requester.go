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

	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

const (
	// pressAgain is how often the nodes are asked about one network.
	pressAgain = 5 * time.Second
	// pressAfter is how long the refusal has to reach the API server. A write before
	// that would make it ask again, or tell a PUT of a conflict instead.
	pressAfter = 300 * time.Millisecond
	// pressTimeout bounds one write.
	pressTimeout = 5 * time.Second
	// pressQueue bounds how many networks wait. A user who is refused tries again.
	pressQueue = 100
)

// presser asks nodes to give back what they hold of a network for Pods to come, as a
// node does that finds its pool exhausted: they do within seconds, and hold nothing
// for a minute. Status has no webhook and no generation, so nobody else is disturbed.
//
// It writes with the controller's rights, so it takes nothing from the request but which
// network it is about: whoever made that up (see cert.Keeper.Guard) gets nothing else.
type presser struct {
	client client.Client
	log    logr.Logger
	queue  chan pressed

	mu      sync.Mutex
	waiting map[types.UID]struct{} // those in queue
}

// pressed is one life of a network.
type pressed struct {
	ref network.Ref
	uid types.UID
}

func newPresser(c client.Client, log logr.Logger) *presser {
	return &presser{client: c, log: log, queue: make(chan pressed, pressQueue), waiting: map[types.UID]struct{}{}}
}

// ask notes a network whose change only such addresses are in the way of; it never
// blocks. One that waits already, or has no UID, is not noted.
func (p *presser) ask(obj client.Object) {
	kind, ok := objects.KindOf(obj)
	uid := obj.GetUID()
	if !ok || uid == "" || !pressable(obj, time.Now()) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, waits := p.waiting[uid]; waits {
		return
	}
	select {
	case p.queue <- pressed{objects.RefOf(kind, obj), uid}:
		p.waiting[uid] = struct{}{}
	default:
	}
}

// pressable reports whether nodes hold addresses of a network and were not asked just now.
func pressable(obj client.Object, now time.Time) bool {
	status := objects.StatusOf(obj)
	if len(held(status)) == 0 {
		return false
	}
	last := status.IPAM.Pressure
	return last == nil || now.Sub(last.Time).Abs() >= pressAgain
}

// NeedLeaderElection says that every replica asks for what it refused.
func (p *presser) NeedLeaderElection() bool { return false }

// Start works until ctx ends.
func (p *presser) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case next := <-p.queue:
			if !pause(ctx, pressAfter) {
				return nil
			}
			p.mu.Lock()
			delete(p.waiting, next.uid)
			p.mu.Unlock()
			if err := p.press(ctx, next, time.Now()); err != nil && ctx.Err() == nil {
				p.log.Error(err, "Ask the nodes to give back what they hold", "network", next.ref.String())
			}
		}
	}
}

// press reads the network and asks, if that is still the one and there is a reason to.
func (p *presser) press(ctx context.Context, which pressed, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, pressTimeout)
	defer cancel()
	obj, err := objects.New(which.ref.Kind)
	if err != nil {
		return err
	}
	if err := p.client.Get(ctx, objects.Key(which.ref), obj); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get %s: %w", which.ref, err)
	}
	if which.uid == "" || obj.GetUID() != which.uid || !pressable(obj, now) {
		return nil // it is gone, or another of its name
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": which.uid},
		"status":   map[string]any{"ipam": map[string]any{"pressure": metav1.NewMicroTime(now)}},
	})
	if err != nil {
		return fmt.Errorf("encode status.ipam.pressure: %w", err)
	}
	err = p.client.Status().Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status.ipam.pressure: %w", err)
	}
	return nil
}
