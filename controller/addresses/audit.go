// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
)

// mostEvents bounds the conflicts of a network whose Pods get Events at one look, and the
// Pods of each: a node that was taken over can claim the addresses of all Pods, and each as
// often as it likes.
const mostEvents = 32

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

// conflicting reports whether a network has the condition AddressConflict.
func conflicting(r reading) bool {
	return meta.FindStatusCondition(objectConditions(r), v1.ConditionAddressConflict) != nil
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

// podOf refers to the Pod of an owner.
func podOf(o claims.Owner) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: o.Namespace, Name: o.Pod, UID: types.UID(o.PodUID)}
}

// conflictText names an address and its owners.
func conflictText(c claims.Conflict) string {
	names := make([]string, len(c.Owners))
	for i, o := range c.Owners {
		names[i] = fmt.Sprintf("Pod %s/%s on node %s", o.Namespace, o.Pod, o.Node)
		if o.Pod == "" {
			names[i] = fmt.Sprintf("node %s, by its entry in status.ipam.held", o.Node)
		}
	}
	return fmt.Sprintf("%v: %s", c.Addr, join(names, " and ", 2, mostText))
}

// conflictsText is the message of the condition. Its Event may be cut: the addresses come last.
func conflictsText(all []claims.Conflict) string {
	const most = 8 << 10 // of the 32 KiB of a condition
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = conflictText(all[i])
	}
	return "connections to these addresses may fail, since each has two owners: delete one of the Pods of each. " +
		"If a node has the other, check whether it was taken over. " + join(texts, "; ", 1, most)
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

// damagedText says what an audit corrected.
func damagedText(d claims.Drift) string {
	return fmt.Sprintf("the bitmap was wrong: %d addresses in use were marked as free and %d free ones as in use; both are corrected. "+
		"If this happens again, check which node writes status.ipam (audit log), and whether it was taken over", d.Marked, d.Freed)
}
