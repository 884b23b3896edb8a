// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"slices"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// reading is an object as it was read, and what is known of its place in time.
type reading struct {
	obj *status.Object
	// newest is the newest version that was known before the read; older says that the
	// object is older than that.
	newest uint64
	older  bool
}

// rollback is what a reading shows of older state, and how the node answers it.
type rollback struct {
	// cause is how the object is known to be older than it has been; empty if it is not.
	cause string
	// report is what the node's entry reports from now on.
	report *v1.RollbackReport
	// reassert says that the node marks all that it has in use; answers that it reports to a
	// recovery with that.
	reassert, answers bool
}

// detectRollback finds out whether the network's object is older than what this node knows,
// and whether it has joined a recovery that was started: no address is claimed until every
// node has reported what it has in use, since the bitmap may lack it. The controller starts
// the recovery.
func detectRollback(r reading, own status.Entry, unreadable bool, l *localState, cfg *Config) rollback {
	var rec *v1.RecoveryStatus
	if r.obj.IPAM != nil {
		rec = r.obj.IPAM.Recovering
	}
	out := rollback{report: own.Rollback}
	reason, cause := rollbackReason(r, own, unreadable, l, cfg)
	if cause != "" {
		out.cause = cause
		// A recovery that this node has not seen yet was begun for the same reason, and the
		// reports to it count; an older state brought back this node's last recovery, or one
		// from before.
		begins := rec == nil || r.older && !rec.StartTime.After(l.recovery)
		if begins && !status.Unanswered(out.report, rec) {
			out.report = &v1.RollbackReport{Reason: reason}
			if rec != nil {
				out.report.RecoveryStartTime = rec.StartTime.DeepCopy()
			}
		}
	}
	out.answers = rec != nil && !status.Unanswered(out.report, rec)
	out.reassert = cause != "" || out.answers && (out.report != nil || !slices.Contains(rec.ReportedNodes, cfg.Node))
	return out
}

// rollbackReason returns how the object is known to be older than it has been, or nothing.
func rollbackReason(r reading, own status.Entry, unreadable bool, l *localState, cfg *Config) (v1.RollbackReason, string) {
	statusMissing := r.obj.IPAM == nil && r.obj.Protected && !r.obj.Deleting
	switch {
	case statusMissing:
		return v1.RollbackStatusMissing, "the network's status was dropped"
	case r.older:
		return v1.RollbackOlderResourceVersion, "the network's object is older than one that this node has seen"
	case l.danmEpMissing:
		return v1.RollbackDanmEpMissing, "a DanmEp of this node is gone, which this node has not removed"
	case cfg.NodeGone():
		return "", "" // the controller removes the entry of a node whose Node object is gone: that is no older state
	case l.entry.changedByOther(&own, unreadable):
		return v1.RollbackEntryChanged, "the node's entry is not what the node wrote last"
	case own.Seq < l.entry.journalled:
		return v1.RollbackOlderEntry, fmt.Sprintf("the node's entry has seq %d, and was at %d", own.Seq, l.entry.journalled)
	}
	return "", ""
}

// checkCutOff returns an error while it cannot be told whether the node's entry is older or
// was removed: this node was cut off, and does not know yet whether its Node is there.
func checkCutOff(own status.Entry, unreadable bool, l *localState, cfg *Config) error {
	unexpected := l.entry.changedByOther(&own, unreadable) || l.entry.journalled > own.Seq
	if cfg.Usable() || cfg.NodeGone() || !unexpected {
		return nil
	}
	return fmt.Errorf("%w: this node was cut off and looks whether its Node object is still there", status.ErrTryAgain)
}
