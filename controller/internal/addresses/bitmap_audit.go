// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// bitmapAudit compares networks' bitmaps with the owners of their addresses, corrects them, and
// reports addresses with two owners.
type bitmapAudit struct {
	cluster *clusterReader
	gc      GarbageCollector
	events  EventRecorder
	metrics *Metrics
	now     func() time.Time
	// needsRepair is Config.NeedsRepair.
	needsRepair func(*status.Object, []status.Endpoint) (bool, error)

	// lastRebuilt is when a network's bitmap was last rebuilt on request.
	lastRebuilt sync.Map // network.Key → time.Time
	// reportedConflicts are a network's conflicts that its Pods have Events of, by message.
	reportedConflicts sync.Map // network.Key → map[string]bool
}

// conflictFindings are the addresses of a network that have two owners.
type conflictFindings struct {
	// unknown is true when no audit has found out.
	unknown bool
	list    []gc.Conflict
}

// reconcile audits a network if the caches show a reason to, or if an earlier audit found
// conflicts. In a recovery it does nothing, because not all owners are known then.
func (a *bitmapAudit) reconcile(ctx context.Context, r networkSnapshot) (conflictFindings, error) {
	if r.Recovering() {
		return conflictFindings{unknown: true}, nil
	}
	suspect, err := a.isSuspect(ctx, r)
	if err != nil {
		return conflictFindings{unknown: true}, err
	}
	if !suspect && !hasConflictCondition(r) {
		a.reportConflicts(ctx, r, nil)
		return conflictFindings{}, nil
	}
	found, err := a.gc.RepairBitmap(ctx, r.key())
	a.reportDrift(ctx, r, found.Drift)
	if err != nil {
		err = fmt.Errorf("audit addresses of %s: %w", r.Ref, err)
		if len(found.Conflicts) == 0 {
			return conflictFindings{unknown: true}, err
		}
	}
	// An entry that cannot be read hides no conflict of the other nodes.
	a.reportConflicts(ctx, r, found.Conflicts)
	return conflictFindings{list: found.Conflicts}, err
}

// isSuspect reports whether an audit may find something. The caller has read the network before
// this reads the cached DanmEps, so that a DanmEp published meanwhile counts.
func (a *bitmapAudit) isSuspect(ctx context.Context, r networkSnapshot) (bool, error) {
	eps, err := a.cluster.networkEndpoints(ctx, r.Ref)
	if err != nil {
		return false, err
	}
	suspect, err := a.needsRepair(r.Object, eps)
	return suspect || err != nil, nil // an audit corrects what is readable, and returns the error
}

// reportDrift counts and reports what an audit corrected.
func (a *bitmapAudit) reportDrift(ctx context.Context, r networkSnapshot, drift gc.Drift) {
	if drift == (gc.Drift{}) {
		return
	}
	a.metrics.addDrift(drift)
	logr.FromContextOrDiscard(ctx).Info("Corrected wrong bits of the bitmap", "freed", drift.Freed, "marked", drift.Marked)
	if drift.Marked > 0 { // leaked addresses are the normal result of a crash
		a.events.Event(r.obj, corev1.EventTypeWarning, v1.ReasonBitmapDamaged, driftMessage(drift))
	}
}

// driftMessage is the message of the Event BitmapDamaged.
func driftMessage(d gc.Drift) string {
	return fmt.Sprintf("the bitmap was wrong: %d addresses in use were marked as free and %d free ones as in use; both are corrected. "+
		"If this happens again, find the node that writes status.ipam in the audit log, and check it for a compromise", d.Marked, d.Freed)
}

// maxConflictEvents bounds the conflicts of a network that get Events in one audit, and the Pods
// of each conflict: a compromised node can claim the addresses of all Pods, many times each.
const maxConflictEvents = 32

// reportConflicts counts the conflicts of a network, and reports each one once to its Pods.
func (a *bitmapAudit) reportConflicts(ctx context.Context, r networkSnapshot, list []gc.Conflict) {
	a.metrics.setConflicts(r.Ref, len(list))
	before, _ := a.reportedConflicts.Load(r.key())
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
				a.events.Event(podReference(o), corev1.EventTypeWarning, v1.ReasonDuplicateAddress, podConflictMessage(r.Ref, found, o))
			}
		}
	}
	if len(now) == 0 {
		a.reportedConflicts.Delete(r.key())
		return
	}
	a.reportedConflicts.Store(r.key(), now)
}

// podReference refers to the Pod of an owner.
func podReference(o gc.Owner) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: o.Namespace, Name: o.Pod, UID: types.UID(o.PodUID)}
}

// podConflictMessage is the message of the Event on one of the Pods. It names no object of another
// namespace, which readers of the Event may not be allowed to see.
func podConflictMessage(ref network.Ref, c gc.Conflict, self gc.Owner) string {
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

// pruneReported forgets the reported conflicts of networks that do not exist any more.
func (a *bitmapAudit) pruneReported(present map[network.Ref][]v1.PoolStatus) {
	a.reportedConflicts.Range(func(key, _ any) bool {
		if k, ok := key.(network.Key); !ok || !hasNetwork(present, k.Ref) {
			a.reportedConflicts.Delete(key)
		}
		return true
	})
}

func hasNetwork(present map[network.Ref][]v1.PoolStatus, ref network.Ref) bool {
	_, ok := present[ref]
	return ok
}

// hasConflictCondition reports whether a network has the condition AddressConflict.
func hasConflictCondition(r networkSnapshot) bool {
	return meta.FindStatusCondition(objectConditions(r), v1.ConditionAddressConflict) != nil
}

// minRebuildInterval is the least time between two rebuilds of one network. Everyone who may write
// the network may request one, and each costs a list of its DanmEps.
const minRebuildInterval = 5 * time.Second

// rebuildOnRequest rebuilds the bitmap if the network has the annotation danm.io/ipam-rebuild, and
// returns its value when the annotation is to be removed. In a recovery the request waits. The
// duration is when to try again; zero means that a change of the network brings it back.
func (a *bitmapAudit) rebuildOnRequest(ctx context.Context, r networkSnapshot) (retry time.Duration, done bool, err error) {
	_, asked := r.rebuildRequest()
	if !asked || r.Recovering() {
		return 0, false, nil
	}
	if last, ok := a.lastRebuilt.Load(r.key()); ok {
		if at, ok := last.(time.Time); ok && a.now().Sub(at) < minRebuildInterval {
			return minRebuildInterval, false, nil
		}
	}
	a.lastRebuilt.Store(r.key(), a.now())
	found, err := a.gc.RepairBitmap(ctx, r.key())
	drift := found.Drift
	a.metrics.addDrift(drift)
	if err != nil {
		a.events.Event(r.obj, corev1.EventTypeWarning, v1.ReasonBitmapRebuildFailed, err.Error())
		return 0, false, fmt.Errorf("rebuild bitmap of %s: %w", r.Ref, err)
	}
	logr.FromContextOrDiscard(ctx).Info("Rebuilt the bitmap on request", "freed", drift.Freed, "marked", drift.Marked)
	a.events.Event(r.obj, corev1.EventTypeNormal, v1.ReasonBitmapRebuilt, rebuiltMessage(drift))
	return 0, true, nil
}

// rebuiltMessage is the message of the Event Rebuilt.
func rebuiltMessage(d gc.Drift) string {
	if d == (gc.Drift{}) {
		return "the bitmap was rebuilt from the nodes' entries and the DanmEps: nothing had to change"
	}
	return fmt.Sprintf("the bitmap was rebuilt from the nodes' entries and the DanmEps: "+
		"%d unused addresses were freed, %d addresses in use were marked", d.Freed, d.Marked)
}

// pruneRebuilds forgets the rebuilds that limit no request any more.
func (a *bitmapAudit) pruneRebuilds() {
	a.lastRebuilt.Range(func(key, at any) bool {
		if t, ok := at.(time.Time); !ok || a.now().Sub(t) >= minRebuildInterval {
			a.lastRebuilt.Delete(key)
		}
		return true
	})
}
