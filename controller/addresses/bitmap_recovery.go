// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// conflicts are the addresses of a network that have two owners.
type conflicts struct {
	// unknown says that they could not be told.
	unknown bool
	list    []claims.Conflict
}

// audit has the Steward compare the bitmap with its owners, if caches say that it may
// find something, or if conflicts were found before.
func (c *Controller) audit(ctx context.Context, r reading) (conflicts, error) {
	if r.Recovering() {
		return conflicts{unknown: true}, nil // not all owners are known yet
	}
	suspect, err := c.suspect(ctx, r)
	if err != nil {
		return conflicts{unknown: true}, err
	}
	if !suspect && !conflicting(r) {
		c.reportConflicts(ctx, r, nil)
		return conflicts{}, nil
	}
	found, err := c.steward.Audit(ctx, r.key())
	c.corrected(ctx, r, found.Drift)
	if err != nil {
		err = fmt.Errorf("audit addresses of %s: %w", r.Ref, err)
		if len(found.Conflicts) == 0 {
			return conflicts{unknown: true}, err
		}
		// One node's entry that cannot be read hides no conflict of others.
		c.reportConflicts(ctx, r, found.Conflicts)
		return conflicts{list: found.Conflicts}, err
	}
	c.reportConflicts(ctx, r, found.Conflicts)
	return conflicts{list: found.Conflicts}, nil
}

// suspect reports whether an audit may find something. The object was read before the
// cached DanmEps are, so that one published meanwhile counts.
func (c *Controller) suspect(ctx context.Context, r reading) (bool, error) {
	eps, err := c.endpoints(ctx, r.Ref)
	if err != nil {
		return false, err
	}
	suspect, err := c.cfg.Suspect(r.Object, eps)
	return suspect || err != nil, nil // an audit corrects what can be read, and reports the error
}

// corrected counts and reports what an audit corrected.
func (c *Controller) corrected(ctx context.Context, r reading, drift claims.Drift) {
	if drift == (claims.Drift{}) {
		return
	}
	c.metrics.drifted(drift)
	logr.FromContextOrDiscard(ctx).Info("Corrected bits of the bitmap that were wrong", "freed", drift.Freed, "marked", drift.Marked)
	if drift.Marked > 0 { // what a crash leaves to be freed needs no attention
		c.events.Event(r.obj, corev1.EventTypeWarning, v1.ReasonBitmapDamaged, damagedText(drift))
	}
}

// damagedText says what an audit corrected.
func damagedText(d claims.Drift) string {
	return fmt.Sprintf("the bitmap was wrong: %d addresses in use were marked as free and %d free ones as in use; both are corrected. "+
		"If this happens again, check which node writes status.ipam (audit log), and whether it was taken over", d.Marked, d.Freed)
}

// mostEvents bounds the conflicts of a network whose Pods get Events at one look, and the
// Pods of each: a node that was taken over can claim the addresses of all Pods, and each as
// often as it likes.
const mostEvents = 32

// reportConflicts counts the conflicts of a network, and reports each once to its Pods.
func (c *Controller) reportConflicts(ctx context.Context, r reading, list []claims.Conflict) {
	c.metrics.conflicting(r.Ref, len(list))
	before, _ := c.reported.Load(r.key())
	known, _ := before.(map[string]bool)
	now := map[string]bool{}
	for i, found := range list {
		if i == mostEvents {
			break
		}
		text := conflictText(found)
		if now[text] = true; known[text] {
			continue
		}
		logr.FromContextOrDiscard(ctx).Info("Found an address with two owners", "address", found.Addr.String(), "owners", text)
		for _, o := range found.Owners[:min(len(found.Owners), mostEvents)] {
			if o.Pod != "" {
				c.events.Event(podOf(o), corev1.EventTypeWarning, v1.ReasonDuplicateAddress, podConflictText(r.Ref, found, o))
			}
		}
	}
	if len(now) == 0 {
		c.reported.Delete(r.key())
		return
	}
	c.reported.Store(r.key(), now)
}

// podOf refers to the Pod of an owner.
func podOf(o claims.Owner) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: o.Namespace, Name: o.Pod, UID: types.UID(o.PodUID)}
}

// podConflictText is for one of the Pods. Its readers may see no other namespace.
func podConflictText(ref network.Ref, c claims.Conflict, self claims.Owner) string {
	var others []string
	for _, o := range c.Owners {
		switch {
		case o == self:
		case o.Pod != "" && o.Namespace == self.Namespace:
			others = append(others, "Pod "+o.Pod)
		case o.Pod != "":
			others = append(others, "a Pod of another namespace")
		default:
			others = append(others, "another node")
		}
	}
	return fmt.Sprintf("address %v of %s is also used by %s: connections of both may fail. Delete one of them; "+
		"the network's condition AddressConflict names both", c.Addr, ref, join(others, " and ", 1, mostText))
}

// forgetReported drops what was reported of networks that are gone.
func (c *Controller) forgetReported(present map[network.Ref]pool) {
	c.reported.Range(func(key, _ any) bool {
		if k, ok := key.(claims.Key); !ok || !has(present, k.Ref) {
			c.reported.Delete(key)
		}
		return true
	})
}

func has(present map[network.Ref]pool, ref network.Ref) bool {
	_, ok := present[ref]
	return ok
}

// conflicting reports whether a network has the condition AddressConflict.
func conflicting(r reading) bool {
	return meta.FindStatusCondition(objectConditions(r), v1.ConditionAddressConflict) != nil
}

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

// rebuiltText says what a rebuild changed.
func rebuiltText(d claims.Drift) string {
	if d == (claims.Drift{}) {
		return "the bitmap was rebuilt from the nodes' entries and the DanmEps: nothing had to change"
	}
	return fmt.Sprintf("the bitmap was rebuilt from the nodes' entries and the DanmEps: "+
		"%d addresses that nobody has were freed, %d that are in use were marked", d.Freed, d.Marked)
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

// recovered says that a network gives out addresses again.
func (c *Controller) recovered(ctx context.Context, r reading, skipped []string) {
	text := "every node has said what it uses: addresses are given out again"
	if len(skipped) > 0 {
		text += "; left out on request: " + list(skipped)
	}
	logr.FromContextOrDiscard(ctx).Info("The network has recovered", "skipped", skipped)
	c.events.Event(r.obj, corev1.EventTypeNormal, "Recovered", text)
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
