// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// lookBack starts the recovery of a network whose object is older than what this
// node knows, and joins one that was started: no address is claimed until every node
// has said what it has in use, since the bitmap may lack it.
func (p *planner) lookBack() {
	if p.desk == nil {
		return
	}
	why := p.past()
	if why != "" {
		p.report(fmt.Errorf("%s: its addresses are recovered from what all nodes have in use", why))
		if p.startsAnew() {
			p.next.IPAM.Recovering = &v1.Recovering{Since: metav1.NewMicroTime(p.now.Truncate(time.Microsecond))}
		}
	}
	rec := p.next.IPAM.Recovering
	p.reassert = rec != nil && (why != "" || !slices.Contains(rec.Done, p.cfg.Node))
}

// startsAnew reports whether a recovery has to begin. One that this node has not seen
// yet was begun by another node for the same reason, and its reports count; one that
// this node has seen before was brought back by the older state.
func (p *planner) startsAnew() bool {
	rec := p.next.IPAM.Recovering
	return rec == nil || p.older && rec.Since.Time.Equal(p.book.recovery)
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
func (p *planner) past() string {
	switch {
	case p.blank:
		return "the network's status was dropped"
	case p.older:
		return "the network's object is older than one that this node has seen"
	case p.book.missing:
		return "a DanmEp of this node is gone, which this node has not removed"
	case p.cfg.Gone():
		return "" // the controller evicts a node whose Node object is gone: that is no older state
	case p.foreignHand():
		return "the node's entry is not what the node wrote last"
	case p.before < p.book.remembered:
		return fmt.Sprintf("the node's entry has seq %d, and was at %d", p.before, p.book.remembered)
	}
	return ""
}

// foreignHand reports whether somebody else has written the node's entry: an older
// copy of the object was written over it. A write whose answer was lost may be this
// node's own, and one that no write of this life has fenced off may be a former life's.
func (p *planner) foreignHand() bool {
	return p.book.sure && p.book.fenced && !p.unreadable && !p.found.same(&p.book.entry)
}

// restore reports to a recovery, once cover has put into the entry what is in use
// here: it marks what DanmEps cover, which older pages may lack.
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
	if !slices.Contains(rec.Done, p.cfg.Node) {
		rec.Done = append(rec.Done, p.cfg.Node)
		slices.Sort(rec.Done)
	}
}
