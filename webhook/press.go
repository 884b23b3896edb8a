// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
type presser struct {
	client client.Client
	log    logr.Logger
	queue  chan client.Object
}

func newPresser(c client.Client, log logr.Logger) *presser {
	return &presser{client: c, log: log, queue: make(chan client.Object, pressQueue)}
}

// ask notes a network whose change only such addresses are in the way of; it never
// blocks.
func (p *presser) ask(obj client.Object) {
	ipam := objects.StatusOf(obj).IPAM
	if last := ipam.Pressure; last != nil && time.Since(last.Time).Abs() < pressAgain {
		return
	}
	select {
	case p.queue <- obj:
	default:
	}
}

// NeedLeaderElection says that every replica asks for what it refused.
func (p *presser) NeedLeaderElection() bool { return false }

// Start works until ctx ends.
func (p *presser) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case obj := <-p.queue:
			if !pause(ctx, pressAfter) {
				return nil
			}
			if err := p.press(ctx, obj, time.Now()); err != nil && ctx.Err() == nil {
				p.log.Error(err, "Ask the nodes to give back what they hold", "network", client.ObjectKeyFromObject(obj).String())
			}
		}
	}
}

func (p *presser) press(ctx context.Context, obj client.Object, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, pressTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": obj.GetUID()},
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
