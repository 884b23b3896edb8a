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

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// conflictFindings are the addresses of a network that have two owners.
type conflictFindings struct {
	// unknown says that they could not be told.
	unknown bool
	list    []claims.Conflict
}

// reconcileBitmap has the Steward compare the bitmap with its owners, if caches say that it may
// find something, or if conflicts were found before.
func (c *Controller) reconcileBitmap(ctx context.Context, r networkSnapshot) (conflictFindings, error) {
	if r.Recovering() {
		return conflictFindings{unknown: true}, nil // not all owners are known yet
	}
	suspect, err := c.bitmapNeedsRepair(ctx, r)
	if err != nil {
		return conflictFindings{unknown: true}, err
	}
	if !suspect && !hasConflictCondition(r) {
		c.reportConflicts(ctx, r, nil)
		return conflictFindings{}, nil
	}
	found, err := c.gc.Audit(ctx, r.key())
	c.reportDrift(ctx, r, found.Drift)
	if err != nil {
		err = fmt.Errorf("audit addresses of %s: %w", r.Ref, err)
		if len(found.Conflicts) == 0 {
			return conflictFindings{unknown: true}, err
		}
		// One node's entry that cannot be read hides no conflict of others.
		c.reportConflicts(ctx, r, found.Conflicts)
		return conflictFindings{list: found.Conflicts}, err
	}
	c.reportConflicts(ctx, r, found.Conflicts)
	return conflictFindings{list: found.Conflicts}, nil
}

// bitmapNeedsRepair reports whether an audit may find something. The object was read before the
// cached DanmEps are, so that one published meanwhile counts.
func (c *Controller) bitmapNeedsRepair(ctx context.Context, r networkSnapshot) (bool, error) {
	eps, err := c.networkEndpoints(ctx, r.Ref)
	if err != nil {
		return false, err
	}
	suspect, err := c.cfg.NeedsRepair(r.Object, eps)
	return suspect || err != nil, nil // an audit corrects what can be read, and reports the error
}

// reportDrift counts and reports what an audit corrected.
func (c *Controller) reportDrift(ctx context.Context, r networkSnapshot, drift claims.Drift) {
	if drift == (claims.Drift{}) {
		return
	}
	c.metrics.addDrift(drift)
	logr.FromContextOrDiscard(ctx).Info("Corrected bits of the bitmap that were wrong", "freed", drift.Freed, "marked", drift.Marked)
	if drift.Marked > 0 { // what a crash leaves to be freed needs no attention
		c.events.Event(r.obj, corev1.EventTypeWarning, v1.ReasonBitmapDamaged, driftMessage(drift))
	}
}

// driftMessage says what an audit corrected.
func driftMessage(d claims.Drift) string {
	return fmt.Sprintf("the bitmap was wrong: %d addresses in use were marked as free and %d free ones as in use; both are corrected. "+
		"If this happens again, check which node writes status.ipam (audit log), and whether it was taken over", d.Marked, d.Freed)
}

// maxConflictEvents bounds the conflicts of a network whose Pods get Events at one look, and the
// Pods of each: a node that was taken over can claim the addresses of all Pods, and each as
// often as it likes.
const maxConflictEvents = 32

// reportConflicts counts the conflicts of a network, and reports each once to its Pods.
func (c *Controller) reportConflicts(ctx context.Context, r networkSnapshot, list []claims.Conflict) {
	c.metrics.setConflicts(r.Ref, len(list))
	before, _ := c.reportedConflicts.Load(r.key())
	known, _ := before.(map[string]bool)
	now := map[string]bool{}
	for i, found := range list {
		if i == maxConflictEvents {
			break
		}
		text := conflictMessage(found)
		if now[text] = true; known[text] {
			continue
		}
		logr.FromContextOrDiscard(ctx).Info("Found an address with two owners", "address", found.Addr.String(), "owners", text)
		for _, o := range found.Owners[:min(len(found.Owners), maxConflictEvents)] {
			if o.Pod != "" {
				c.events.Event(podReference(o), corev1.EventTypeWarning, v1.ReasonDuplicateAddress, podConflictMessage(r.Ref, found, o))
			}
		}
	}
	if len(now) == 0 {
		c.reportedConflicts.Delete(r.key())
		return
	}
	c.reportedConflicts.Store(r.key(), now)
}

// podReference refers to the Pod of an owner.
func podReference(o claims.Owner) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: o.Namespace, Name: o.Pod, UID: types.UID(o.PodUID)}
}

// podConflictMessage is for one of the Pods. Its readers may see no other namespace.
func podConflictMessage(ref network.Ref, c claims.Conflict, self claims.Owner) string {
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
		"the network's condition AddressConflict names both", c.Addr, ref, joinLimited(others, " and ", 1, maxNamesLength))
}

// pruneReportedConflicts drops what was reported of networks that are gone.
func (c *Controller) pruneReportedConflicts(present map[network.Ref]poolSize) {
	c.reportedConflicts.Range(func(key, _ any) bool {
		if k, ok := key.(claims.Key); !ok || !hasNetwork(present, k.Ref) {
			c.reportedConflicts.Delete(key)
		}
		return true
	})
}

func hasNetwork(present map[network.Ref]poolSize, ref network.Ref) bool {
	_, ok := present[ref]
	return ok
}

// hasConflictCondition reports whether a network has the condition AddressConflict.
func hasConflictCondition(r networkSnapshot) bool {
	return meta.FindStatusCondition(objectConditions(r), v1.ConditionAddressConflict) != nil
}

// minRebuildInterval is the least time between two rebuilds of one network: whoever may
// write the network may ask, and each costs a list of its DanmEps.
const minRebuildInterval = 5 * time.Second

// rebuildOnRequest writes the bitmap anew if the network's annotation asks for it, then
// takes the annotation away. It returns when to look again, if not by itself.
func (c *Controller) rebuildOnRequest(ctx context.Context, r networkSnapshot) (time.Duration, error) {
	value, asked := r.rebuildRequest()
	if !asked || r.Recovering() {
		return 0, nil // in a recovery nobody can tell what is in use; it waits
	}
	if last, ok := c.lastRebuilt.Load(r.key()); ok {
		if at, ok := last.(time.Time); ok && c.since(at) < minRebuildInterval {
			return minRebuildInterval, nil
		}
	}
	c.lastRebuilt.Store(r.key(), c.cfg.Now())
	found, err := c.gc.Audit(ctx, r.key())
	drift := found.Drift
	c.metrics.addDrift(drift)
	if err != nil {
		c.events.Event(r.obj, corev1.EventTypeWarning, v1.ReasonBitmapRebuildFailed, err.Error())
		return 0, fmt.Errorf("rebuild bitmap of %s: %w", r.Ref, err)
	}
	logr.FromContextOrDiscard(ctx).Info("Rebuilt the bitmap on request", "freed", drift.Freed, "marked", drift.Marked)
	c.events.Event(r.obj, corev1.EventTypeNormal, v1.ReasonBitmapRebuilt, rebuiltMessage(drift))
	return 0, c.removeAnnotation(ctx, r, v1.RebuildAnnotation, value)
}

// rebuiltMessage says what a rebuild changed.
func rebuiltMessage(d claims.Drift) string {
	if d == (claims.Drift{}) {
		return "the bitmap was rebuilt from the nodes' entries and the DanmEps: nothing had to change"
	}
	return fmt.Sprintf("the bitmap was rebuilt from the nodes' entries and the DanmEps: "+
		"%d addresses that nobody has were freed, %d that are in use were marked", d.Freed, d.Marked)
}

// pruneRebuilds drops what holds no network back any more.
func (c *Controller) pruneRebuilds() {
	c.lastRebuilt.Range(func(key, at any) bool {
		if t, ok := at.(time.Time); !ok || c.since(t) >= minRebuildInterval {
			c.lastRebuilt.Delete(key)
		}
		return true
	})
}

// removeStaleSkip takes the annotation away when there is no recovery: it must not count
// for a later one. What it does in a recovery is recover's work.
func (c *Controller) removeStaleSkip(ctx context.Context, r networkSnapshot) error {
	value, ok := r.skipRequest()
	if !ok || r.Recovering() {
		return nil
	}
	return c.removeAnnotation(ctx, r, v1.SkipAnnotation, value)
}

// removeAnnotation takes an annotation off the network, unless somebody has written another
// value meanwhile: that is a new request.
func (c *Controller) removeAnnotation(ctx context.Context, r networkSnapshot, name, value string) error {
	path := "/metadata/annotations/" + strings.ReplaceAll(name, "/", "~1")
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": r.UID},
		{"op": "test", "path": path, "value": value},
		{"op": "remove", "path": path},
	})
	if err != nil {
		return fmt.Errorf("encode patch of %s: %w", r.Ref, err)
	}
	obj := kube.PartialMetadata(r.Ref.Kind)
	obj.Namespace, obj.Name = r.Ref.Namespace, r.Ref.Name
	err = c.direct.Patch(ctx, obj, client.RawPatch(types.JSONPatchType, patch))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) { // Invalid: a test failed
		return fmt.Errorf("take annotation %s off %s: %w", name, r.Ref, err)
	}
	return nil
}

// recoveryProgress is a recovery that is not over.
type recoveryProgress struct {
	// since tells it from another recovery of the same network.
	since string
	// awaited are the nodes that have not reported; nobody when it is over. skipped
	// are left out.
	awaited, skipped []string
	// deferred are the nodes whose reports of rollbacks start no recovery, and until when.
	deferred map[string]metav1.MicroTime
	// stale says that the reading is not the present state any more.
	stale bool
}

// reconcileRecovery starts the recovery of a network when a node reports a rollback, and ends it
// when every Node has said what it uses, or is skipped. It returns who is awaited.
func (c *Controller) reconcileRecovery(ctx context.Context, r networkSnapshot) (recoveryProgress, error) {
	w := recoveryProgress{deferred: r.deferredNodes()}
	if r.RollbackDue(c.cfg.Now()) {
		return c.startRecovery(ctx, r, w)
	}
	state := r.recovery()
	if state == nil {
		return w, nil
	}
	w.since = state.StartTime.UTC().Format(time.RFC3339Nano)
	known, err := c.cachedNodes(ctx)
	if err != nil {
		return w, err
	}
	text, _ := r.skipRequest()
	w.skipped = skippedNodes(known.linuxNames(), text)
	if w.awaited = awaitedNodes(known.linuxNames(), state.ReportedNodes, w.skipped); len(w.awaited) > 0 {
		return w, nil // the cache may know too many Nodes for a moment: it will know better
	}
	// The last word is the API server's: a Node that the cache does not know yet
	// must be waited for.
	if known, err = c.liveNodes.get(ctx, c); err != nil {
		return w, err
	}
	w.skipped = skippedNodes(known.linuxNames(), text)
	if w.awaited, err = c.gc.Recover(ctx, r.key(), known.linuxNames(), w.skipped); err != nil {
		return w, fmt.Errorf("end the recovery of %s: %w", r.Ref, err)
	}
	if len(w.awaited) == 0 {
		c.reportRecovered(ctx, r, w.skipped)
	}
	return w, nil
}

// awaitedNodes are the nodes that are neither done nor skipped, in order.
func awaitedNodes(nodes, done, skip []string) []string {
	var left []string
	for _, n := range nodes {
		if !slices.Contains(done, n) && !slices.Contains(skip, n) {
			left = append(left, n)
		}
	}
	slices.Sort(left)
	return left
}

// reportRecovered says that a network gives out addresses again.
func (c *Controller) reportRecovered(ctx context.Context, r networkSnapshot, skipped []string) {
	text := "every node has said what it uses: addresses are given out again"
	if len(skipped) > 0 {
		text += "; left out on request: " + joinNames(skipped)
	}
	logr.FromContextOrDiscard(ctx).Info("The network has recovered", "skipped", skipped)
	c.events.Event(r.obj, corev1.EventTypeNormal, "Recovered", text)
}

// startRecovery has a recovery start that a node asks for with its report of a rollback, unless the
// node has reported too many.
func (c *Controller) startRecovery(ctx context.Context, r networkSnapshot, w recoveryProgress) (recoveryProgress, error) {
	known, err := c.liveNodes.get(ctx, c)
	if err != nil {
		return w, err
	}
	text, _ := r.skipRequest()
	w.skipped = skippedNodes(known.linuxNames(), text)
	if w.awaited, err = c.gc.Recover(ctx, r.key(), known.linuxNames(), w.skipped); err != nil {
		return w, fmt.Errorf("start the recovery of %s: %w", r.Ref, err)
	}
	logr.FromContextOrDiscard(ctx).Info("Read the reports of rollbacks", "awaited", w.awaited)
	w.stale = true
	return w, nil
}

// skippedNodes are those of nodes that the value of the annotation danm.io/ipam-skip names, with
// commas between names. Tenants write it: nothing else of it is remembered or reported, and
// it costs no more than its length.
func skippedNodes(nodes []string, text string) []string {
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

// setRecoveringAnnotation says in the network's metadata since when it recovers, or that it does not. Nodes
// that do not use the network read nothing else of it, and report when the time is
// another one: so also when a recovery begins anew while it runs, however late they look.
func (c *Controller) setRecoveringAnnotation(ctx context.Context, r networkSnapshot, since string) error {
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
	obj := kube.PartialMetadata(r.Ref.Kind)
	obj.Namespace, obj.Name = r.Ref.Namespace, r.Ref.Name
	if err := c.direct.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("set annotation %s of %s: %w", v1.RecoveringAnnotation, r.Ref, err)
	}
	return nil
}
