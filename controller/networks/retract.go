// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// retract takes back what this package said of a network that has no link any more, or
// is invalid: nobody would keep it true. What the nodes say of a wrong definition has
// other reasons, and stays.
func (c *Controller) retract(ctx context.Context, ref network.Ref, t *told) (reconcile.Result, error) {
	ours := []string{v1.ReasonLinksUp, v1.ReasonLinksNotUp, v1.ReasonNoNodes}
	if t.Ready == nil || !slices.Contains(ours, t.Ready.Reason) {
		return reconcile.Result{}, nil
	}
	now := c.cfg.Now()
	if wait := c.cfg.Pace - now.Sub(t.wrote); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err := c.store.Write(ctx, ref, t.UID, nil); err != nil {
		return reconcile.Result{}, fmt.Errorf("take back condition of %s: %w", ref, err)
	}
	c.metrics.written.Inc()
	t.Ready, t.wrote, t.differs = nil, now, time.Time{}
	return reconcile.Result{}, nil
}
