// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/objects"
)

// rebuildEvery is the least time between two rebuilds of one network: whoever may
// write the network may ask, and each costs a list of its DanmEps.
const rebuildEvery = 5 * time.Second

// obeyRebuild writes the bitmap anew if the network's annotation asks for it, then
// takes the annotation away. It returns when to look again, if not by itself.
func (c *Controller) obeyRebuild(ctx context.Context, r reading) (time.Duration, error) {
	value, asked := r.rebuild()
	if !asked || r.Recovering() {
		return 0, nil // in a recovery nobody can tell what is in use; it waits
	}
	if last, ok := c.rebuilt.Load(r.key()); ok {
		if at, ok := last.(time.Time); ok && c.since(at) < rebuildEvery {
			return rebuildEvery, nil
		}
	}
	c.rebuilt.Store(r.key(), c.cfg.Now())
	found, err := c.steward.Audit(ctx, r.key())
	drift := found.Drift
	c.metrics.drifted(drift)
	if err != nil {
		c.events.Event(r.obj, corev1.EventTypeWarning, v1.ReasonRebuildFailed, err.Error())
		return 0, fmt.Errorf("rebuild bitmap of %s: %w", r.Ref, err)
	}
	logr.FromContextOrDiscard(ctx).Info("Rebuilt the bitmap on request", "freed", drift.Freed, "marked", drift.Marked)
	c.events.Event(r.obj, corev1.EventTypeNormal, v1.ReasonRebuilt, rebuiltText(drift))
	return 0, c.unset(ctx, r, v1.RebuildAnnotation, value)
}

// forgetRebuilds drops what holds no network back any more.
func (c *Controller) forgetRebuilds() {
	c.rebuilt.Range(func(key, at any) bool {
		if t, ok := at.(time.Time); !ok || c.since(t) >= rebuildEvery {
			c.rebuilt.Delete(key)
		}
		return true
	})
}

// rebuiltText says what a rebuild changed.
func rebuiltText(d claims.Drift) string {
	if d == (claims.Drift{}) {
		return "the bitmap was rebuilt from the nodes' entries and the DanmEps: nothing had to change"
	}
	return fmt.Sprintf("the bitmap was rebuilt from the nodes' entries and the DanmEps: "+
		"%d addresses that nobody has were freed, %d that are in use were marked", d.Freed, d.Marked)
}

// obeySkip takes the annotation away when there is no recovery: it must not count
// for a later one. What it does in a recovery is recover's work.
func (c *Controller) obeySkip(ctx context.Context, r reading) error {
	value, ok := r.skip()
	if !ok || r.Recovering() {
		return nil
	}
	return c.unset(ctx, r, v1.SkipAnnotation, value)
}

// unset takes an annotation off the network, unless somebody has written another
// value meanwhile: that is a new request.
func (c *Controller) unset(ctx context.Context, r reading, name, value string) error {
	path := "/metadata/annotations/" + strings.ReplaceAll(name, "/", "~1")
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": r.UID},
		{"op": "test", "path": path, "value": value},
		{"op": "remove", "path": path},
	})
	if err != nil {
		return fmt.Errorf("encode patch of %s: %w", r.Ref, err)
	}
	obj := objects.Metadata(r.Ref.Kind)
	obj.Namespace, obj.Name = r.Ref.Namespace, r.Ref.Name
	err = c.direct.Patch(ctx, obj, client.RawPatch(types.JSONPatchType, patch))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) { // Invalid: a test failed
		return fmt.Errorf("take annotation %s off %s: %w", name, r.Ref, err)
	}
	return nil
}
