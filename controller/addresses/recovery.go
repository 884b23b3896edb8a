// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/objects"
)

// waiting is a recovery that is not over.
type waiting struct {
	// since tells it from another recovery of the same network.
	since string
	// awaited are the nodes that have not reported; nobody when it is over. skipped
	// are left out.
	awaited, skipped []string
	// deferred are the nodes whose reports of rollbacks start no recovery, and until when.
	deferred map[string]metav1.MicroTime
	// over says that the reading is not the present state any more.
	over bool
}

// recover starts the recovery of a network when a node reports a rollback, and ends it
// when every Node has said what it uses, or is skipped. It returns who is awaited.
func (c *Controller) recover(ctx context.Context, r reading) (waiting, error) {
	w := waiting{deferred: r.deferred()}
	if r.RollbackDue(c.cfg.Now()) {
		return c.startRecovery(ctx, r, w)
	}
	state := r.recovery()
	if state == nil {
		return w, nil
	}
	w.since = state.Since.UTC().Format(time.RFC3339Nano)
	known, err := c.nodes(ctx)
	if err != nil {
		return w, err
	}
	text, _ := r.skip()
	w.skipped = listed(known.names(), text)
	if w.awaited = remaining(known.names(), state.Done, w.skipped); len(w.awaited) > 0 {
		return w, nil // the cache may know too many Nodes for a moment: it will know better
	}
	// The last word is the API server's: a Node that the cache does not know yet
	// must be waited for.
	if known, err = c.members.get(ctx, c); err != nil {
		return w, err
	}
	w.skipped = listed(known.names(), text)
	if w.awaited, err = c.steward.Recover(ctx, r.key(), known.names(), w.skipped); err != nil {
		return w, fmt.Errorf("end the recovery of %s: %w", r.Ref, err)
	}
	if len(w.awaited) == 0 {
		c.recovered(ctx, r, w.skipped)
	}
	return w, nil
}

// startRecovery has a recovery start that a node asks for with its report of a rollback, unless the
// node has reported too many.
func (c *Controller) startRecovery(ctx context.Context, r reading, w waiting) (waiting, error) {
	known, err := c.members.get(ctx, c)
	if err != nil {
		return w, err
	}
	text, _ := r.skip()
	w.skipped = listed(known.names(), text)
	if w.awaited, err = c.steward.Recover(ctx, r.key(), known.names(), w.skipped); err != nil {
		return w, fmt.Errorf("start the recovery of %s: %w", r.Ref, err)
	}
	logr.FromContextOrDiscard(ctx).Info("Read the reports of rollbacks", "awaited", w.awaited)
	w.over = true
	return w, nil
}

// mark says in the network's metadata since when it recovers, or that it does not. Nodes
// that do not use the network read nothing else of it, and report when the time is
// another one: so also when a recovery begins anew while it runs, however late they look.
func (c *Controller) mark(ctx context.Context, r reading, since string) error {
	if r.obj.GetAnnotations()[v1.RecoveringAnnotation] == since {
		return nil
	}
	var value any // null takes it off
	if since != "" {
		value = since
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": r.UID, "annotations": map[string]any{v1.RecoveringAnnotation: value},
	}})
	if err != nil {
		return fmt.Errorf("encode patch of %s: %w", r.Ref, err)
	}
	obj := objects.Metadata(r.Ref.Kind)
	obj.Namespace, obj.Name = r.Ref.Namespace, r.Ref.Name
	if err := c.direct.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("set annotation %s of %s: %w", v1.RecoveringAnnotation, r.Ref, err)
	}
	return nil
}

// recovered says that a network gives out addresses again.
func (c *Controller) recovered(ctx context.Context, r reading, skipped []string) {
	text := "every node has said what it uses: addresses are given out again"
	if len(skipped) > 0 {
		text += "; left out on request: " + list(skipped)
	}
	logr.FromContextOrDiscard(ctx).Info("The network has recovered", "skipped", skipped)
	c.events.Event(r.obj, corev1.EventTypeNormal, "Recovered", text)
}

// remaining are the nodes that are neither done nor skipped, in order.
func remaining(nodes, done, skip []string) []string {
	var left []string
	for _, n := range nodes {
		if !slices.Contains(done, n) && !slices.Contains(skip, n) {
			left = append(left, n)
		}
	}
	slices.Sort(left)
	return left
}

// listed are those of nodes that the value of the annotation danm.io/ipam-skip names, with
// commas between names. Tenants write it: nothing else of it is remembered or reported, and
// it costs no more than its length.
func listed(nodes []string, text string) []string {
	if text == "" {
		return nil
	}
	names := map[string]bool{}
	for name := range strings.SplitSeq(text, ",") {
		names[strings.TrimSpace(name)] = true
	}
	var found []string
	for _, n := range nodes {
		if names[n] {
			found = append(found, n)
		}
	}
	return found
}

// members are the Node objects as the API server has them. When etcd was restored
// all networks recover at once: one list serves those of a moment.
type members struct {
	mu   sync.Mutex
	at   time.Time
	list nodes
}

// membersFor is how long a list of Nodes serves. A Node that is made within this
// time could as well be made after the recovery.
const membersFor = 2 * time.Second

// get returns the Nodes.
func (m *members) get(ctx context.Context, c *Controller) (nodes, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.list != nil && c.since(m.at) < membersFor {
		return m.list, nil
	}
	at := c.cfg.Now()
	fresh, err := listNodes(ctx, c.direct)
	if err != nil {
		return nil, err
	}
	m.at, m.list = at, fresh
	return fresh, nil
}
