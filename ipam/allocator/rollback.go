// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"slices"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// rollback is the result of the rollback detection, and how the node responds to it.
type rollback struct {
	// cause describes how the node knows of a rollback; empty if there is none.
	cause string
	// report is the report for the node's entry.
	report *v1.RollbackReport
	// reassert means that the node sets the bits of all its addresses; answers that it also
	// reports to a recovery.
	reassert, answers bool
}

// detectRollback detects whether the network's object was rolled back, and whether this node has
// to report to a recovery. The bitmap may lack addresses, so that none can be claimed until every
// node has reported its addresses. The controller starts the recovery.
func detectRollback(r reading, own status.Entry, unreadable bool, l *localState, cfg *Config) rollback {
	var rec *v1.RecoveryStatus
	if r.obj.IPAM != nil {
		rec = r.obj.IPAM.Recovering
	}
	out := rollback{report: own.Rollback}
	reason, cause := rollbackReason(r, own, unreadable, l, cfg)
	if cause != "" {
		out.cause = cause
		// A recovery that this node has not seen yet was started for the same rollback, and
		// the node only has to report to it. The last recovery that this node has seen, or an
		// older one, came back with the rollback.
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

// rollbackReason returns how this node knows that the object was rolled back, or nothing.
func rollbackReason(r reading, own status.Entry, unreadable bool, l *localState, cfg *Config) (v1.RollbackReason, string) {
	statusMissing := r.obj.IPAM == nil && r.obj.Protected && !r.obj.Deleting
	switch {
	case statusMissing:
		return v1.RollbackStatusMissing, "the network's status was dropped"
	case r.older:
		return v1.RollbackOlderResourceVersion, "the network's object is older than one that this node has seen"
	case l.danmEpMissing:
		return v1.RollbackDanmEpMissing, "a DanmEp of this node is gone, which this node has not deleted"
	case cfg.NodeGone():
		return "", "" // the controller removes the entry of a node whose Node object is gone: that is no rollback
	case l.entry.changedByOther(&own, unreadable):
		return v1.RollbackEntryChanged, "the node's entry is not what the node wrote last"
	case own.Seq < l.entry.journalled:
		return v1.RollbackOlderEntry, fmt.Sprintf("the node's entry has seq %d, and was at %d", own.Seq, l.entry.journalled)
	}
	return "", ""
}

// checkCutOff returns an error while it is unknown whether the node's entry was rolled back or was
// removed: this node was cut off, and does not know yet whether its Node object exists.
func checkCutOff(own status.Entry, unreadable bool, l *localState, cfg *Config) error {
	if cfg.Usable() || cfg.NodeGone() || !l.entry.changedByOther(&own, unreadable) && l.entry.journalled <= own.Seq {
		return nil
	}
	return fmt.Errorf("%w: this node was cut off and checks whether its Node object still exists", status.ErrTryAgain)
}

// entryState is the state of this node's own entry, as this node knows it.
type entryState struct {
	// written is the entry as last written or read. sure means that the object has it: no
	// later write has lost its response.
	written status.Entry
	sure    bool
	// attempted is the entry of the last write if that had a conflict, else nil. The conflict
	// may be with a duplicate of itself, because a proxy may send a request twice.
	attempted *status.Entry
	// fenced means that this incarnation has changed the entry, so that no write of a former
	// incarnation can be applied any more. seq is the last one that was or may have been
	// written.
	fenced bool
	seq    int64
	// journalled is the seq in the journal, 0 for none.
	journalled int64
}

// next returns the seq to write into an entry that has this seq now. The first write of this
// incarnation raises it above those of former incarnations. This is a real change, so that
// in-flight writes of a former incarnation have a conflict.
func (s *entryState) next(seq, incarnation int64) int64 {
	if s.fenced {
		return max(seq, s.seq)
	}
	return max(seq+1, incarnation, s.journalled+1)
}

// changedByOther reports whether another program has written the node's entry, that is, restored
// an older copy of the object. It reports false while a write without a response may be this
// node's own, or a write that is not fenced yet may be a former incarnation's.
func (s *entryState) changedByOther(e *status.Entry, unreadable bool) bool {
	return s.sure && s.fenced && !unreadable && !e.CoversSame(&s.written)
}
