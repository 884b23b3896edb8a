// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"slices"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

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

// entryState is what this node knows of its own entry.
type entryState struct {
	// written is the entry as last written or read, and sure says that it is that in the
	// object: no write since has lost its answer.
	written status.Entry
	sure    bool
	// attempted is what the last write, which met a conflict, would have made of the entry;
	// nil for none. It may have met itself: a proxy on the way may send a request twice.
	attempted *status.Entry
	// fenced says that this incarnation has changed the entry, so that no write of a former
	// incarnation can be applied any more. seq is what was written last, or may have been.
	fenced bool
	seq    int64
	// journalled is the seq that the journal has of this network, 0 for none.
	journalled int64
}

// next is what seq becomes if the entry is written that has this seq now. The first write of
// this incarnation raises it above whatever a former incarnation wrote: a real change, so
// that writes of the former incarnation that are still on their way meet a conflict.
func (s *entryState) next(seq, incarnation int64) int64 {
	if s.fenced {
		return max(seq, s.seq)
	}
	return max(seq+1, incarnation, s.journalled+1)
}

// changedByOther reports whether another program has written the node's entry: an older copy
// of the object was written over it. A write whose answer was lost may be this node's own,
// and one that no write of this incarnation has fenced off may be a former incarnation's.
func (s *entryState) changedByOther(e *status.Entry, unreadable bool) bool {
	return s.sure && s.fenced && !unreadable && !e.CoversSame(&s.written)
}
