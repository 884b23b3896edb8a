// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"slices"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// Recovering reports whether it is not known which addresses are in use: a recovery is
// under way, or a node reports a rollback that the controller has not deferred.
func (o *Object) Recovering() bool { return o.IPAM != nil && recovering(o.IPAM) }

func recovering(s *v1.IPAMStatus) bool {
	if s.Recovering != nil {
		return true
	}
	for name, h := range s.Held {
		if _, deferred := s.RecoveryDeferredUntil[name]; h.Rollback != nil && !deferred && ofNode(name) {
			return true
		}
	}
	return false
}

// RollbackDue reports whether Steward.Recover has something to do about reports of
// rollbacks: one is to begin a recovery, or the time of a deferral is over.
func (o *Object) RollbackDue(now time.Time) bool {
	if o.IPAM == nil {
		return false
	}
	for name, h := range o.IPAM.Held {
		until := o.IPAM.RecoveryDeferredUntil[name]
		if ofNode(name) && unanswered(h.Rollback, o.IPAM.Recovering) && !until.After(now) {
			return true
		}
	}
	for _, until := range o.IPAM.RecoveryDeferredUntil {
		if !until.After(now) {
			return true
		}
	}
	return false
}

// recovering is Recovering for the plan: the node's own report counts, even if deferred.
func (p *planner) recovering() bool {
	return p.entry.rollback != nil || recovering(p.next.IPAM)
}

// unanswered reports whether a rollback is reported to which no recovery answers: there is
// none, or it is the one that the older object was in.
func unanswered(r *v1.RollbackReport, rec *v1.RecoveryStatus) bool {
	return r != nil && (rec == nil || r.RecoveryStartTime != nil && r.RecoveryStartTime.Time.Equal(rec.StartTime.Time))
}

// lookBack reports a rollback of a network whose object is older than what this node
// knows, and joins a recovery that was started: no address is claimed until every node
// has said what it has in use, since the bitmap may lack it. The recovery itself is the
// controller's to start.
func (p *planner) lookBack() {
	if p.desk == nil {
		return
	}
	rec := p.next.IPAM.Recovering
	reason, why := p.past()
	if why != "" {
		p.report(fmt.Errorf("%s: its addresses are recovered from what all nodes have in use", why))
		if p.startsAnew() && !unanswered(p.entry.rollback, rec) {
			p.entry.rollback = &v1.RollbackReport{Reason: reason}
			if rec != nil {
				p.entry.rollback.RecoveryStartTime = rec.StartTime.DeepCopy()
			}
		}
	}
	p.answers = rec != nil && !unanswered(p.entry.rollback, rec)
	p.reassert = why != "" || p.answers && (p.entry.rollback != nil || !slices.Contains(rec.ReportedNodes, p.cfg.Node))
}

// startsAnew reports whether a recovery has to begin. One that this node has not seen
// yet was begun for the same reason, and the reports to it count; this node's last one,
// or one from before, was brought back by the older state.
func (p *planner) startsAnew() bool {
	rec := p.next.IPAM.Recovering
	return rec == nil || p.older && !rec.StartTime.After(p.book.recovery)
}

// uncertain is an error while it cannot be told whether the node's entry is older or
// was evicted: this node was cut off, and does not know yet whether its Node is there.
func (p *planner) uncertain() error {
	if p.desk == nil || p.cfg.Usable() || p.cfg.Gone() || !p.entryIsPast() {
		return nil
	}
	return fmt.Errorf("%w: this node was cut off and looks whether its Node object is still there", ErrTryAgain)
}

// entryIsPast reports whether the node's entry is not what it has to be.
func (p *planner) entryIsPast() bool { return p.foreignHand() || p.book.remembered > p.before }

// past says how the object is known to be older than it has been, or nothing.
func (p *planner) past() (v1.RollbackReason, string) {
	switch {
	case p.blank:
		return v1.RollbackStatusMissing, "the network's status was dropped"
	case p.older:
		return v1.RollbackOlderResourceVersion, "the network's object is older than one that this node has seen"
	case p.book.missing:
		return v1.RollbackDanmEpMissing, "a DanmEp of this node is gone, which this node has not removed"
	case p.cfg.Gone():
		return "", "" // the controller evicts a node whose Node object is gone: that is no older state
	case p.foreignHand():
		return v1.RollbackEntryChanged, "the node's entry is not what the node wrote last"
	case p.before < p.book.remembered:
		return v1.RollbackOlderEntry, fmt.Sprintf("the node's entry has seq %d, and was at %d", p.before, p.book.remembered)
	}
	return "", ""
}

// foreignHand reports whether somebody else has written the node's entry: an older
// copy of the object was written over it. A write whose answer was lost may be this
// node's own, and one that no write of this life has fenced off may be a former life's.
func (p *planner) foreignHand() bool {
	return p.book.sure && p.book.fenced && !p.unreadable && !p.found.same(&p.book.entry)
}

// restore reports to a recovery, once cover has put into the entry what is in use
// here: it marks what DanmEps cover, which older pages may lack. A node that reports a
// rollback does all but that: what it has in use is safe with the same write.
func (p *planner) restore() {
	if !p.reassert {
		return
	}
	for a := range p.owners.mine {
		p.family(a).mark(a)
	}
	for a := range p.owners.theirs {
		p.family(a).mark(a)
	}
	rec := p.next.IPAM.Recovering
	if p.dead {
		return // not before these are gone: somebody else may use what they name
	}
	if !p.answers {
		return // the controller starts the recovery to report to
	}
	p.entry.rollback = nil
	if !slices.Contains(rec.ReportedNodes, p.cfg.Node) {
		rec.ReportedNodes = append(rec.ReportedNodes, p.cfg.Node)
		slices.Sort(rec.ReportedNodes)
	}
}
