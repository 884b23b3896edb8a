// SPDX-License-Identifier: Apache-2.0

package volumes_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/volumes"
)

// side is one cluster of a transfer, with an agent that carries orders out late and reports late.
type side struct {
	order, ordered  v1alpha1.VolumeAction // the last order of the hub, and the one that the agent reads
	done            v1alpha1.VolumeAction // what the agent has carried out of it
	reported        v1alpha1.VolumeAction // what the hub reads
	reportedFor     v1alpha1.VolumeAction
	removal         bool // ordered
	hasClaim, hasPV bool
	retain, fenced  bool
	users           int // Pods and attachments
}

// send gives the cluster an order.
func (c *side) send(order v1alpha1.VolumeAction) { c.order = order }

// act lets the agent take one step of the order that it has.
func (c *side) act(t *rapid.T) {
	switch c.ordered {
	case v1alpha1.VolumeKeep, v1alpha1.VolumeRetain:
		c.fenced = false
		c.retain = c.retain || c.ordered == v1alpha1.VolumeRetain
	case v1alpha1.VolumeFence, v1alpha1.VolumeDiscard:
		if c.hasPV && (!c.fenced || !c.retain) {
			c.fenced, c.retain = true, true
			return
		}
		if c.users > 0 {
			return
		}
		if c.ordered == v1alpha1.VolumeDiscard && c.hasPV {
			if !c.retain {
				t.Fatal("a PersistentVolume is deleted with the policy Delete: its data is lost")
			}
			c.hasPV = false
			return
		}
	case v1alpha1.VolumeBind:
		c.hasPV, c.hasClaim, c.retain, c.fenced = true, true, true, false
	default:
		return
	}
	c.done = c.ordered
}

// world is a transfer with its two clusters.
type world struct {
	state              v1alpha1.VolumeState
	shared, back       bool
	from, to           side
	needsFrom, needsTo bool
	settled            bool
}

func (w *world) orders() {
	w.from.send(volumes.FromAction(w.state, w.shared))
	w.to.send(volumes.ToAction(w.state))
	w.from.removal = w.state == v1alpha1.VolumeRemoving
	w.to.removal = w.state == v1alpha1.VolumeUndoing
}

// step lets the hub decide by the reports.
func (w *world) step() {
	done := func(c *side, action v1alpha1.VolumeAction) bool {
		return action != "" && c.reportedFor == action && c.reported == action && c.order == action
	}
	out := volumes.Step(volumes.Input{
		State: w.state, Shared: w.shared, Return: w.back,
		From: volumes.Side{Needed: w.needsFrom, Done: done(&w.from, volumes.FromAction(w.state, w.shared)), Gone: w.from.removal && !w.from.hasClaim},
		To: volumes.Side{
			Needed: w.needsTo, Done: done(&w.to, volumes.ToAction(w.state)), Gone: w.to.removal && !w.to.hasClaim,
			Bound: done(&w.to, v1alpha1.VolumeBind),
		},
	})
	w.state, w.settled = out.State, w.settled || out.Settled
}

// At no time do two clusters attach a volume that only one may attach; no PersistentVolume is deleted without the
// policy Retain; the first cluster's objects stay until the other one has bound its claim; and from each point, with
// lost and late orders and reports, a healthy transfer ends.
func TestLawsOfATransfer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{state: v1alpha1.VolumeScaling, shared: rapid.Bool().Draw(t, "shared"), needsFrom: true}
		w.from = side{hasClaim: true, hasPV: true, users: 1, ordered: v1alpha1.VolumeKeep}
		w.needsFrom = rapid.Bool().Draw(t, "needs from")
		events := rapid.SampledFrom([]int{0, 0, 1, 1, 2, 3, 4, 4, 5, 5, 6, 7, 8, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
		for range rapid.SampledFrom([]int{0, 10, 50, 200, 800}).Draw(t, "events") {
			w.event(t, events.Draw(t, "event"))
			w.check(t)
			if w.state == volumes.None || w.settled {
				return
			}
		}
		w.back = rapid.Bool().Draw(t, "back")
		w.finish(t)
	})
}

// event is one thing that happens. Each may not happen for a long time: that is a crash, or a lost message.
func (w *world) event(t *rapid.T, event int) {
	switch event {
	case 0:
		w.step()
	case 1: // the write of the orders, which may have been lost before
		w.orders()
	case 2:
		w.from.receive()
	case 3:
		w.to.receive()
	case 4:
		w.from.act(t)
	case 5:
		w.to.act(t)
	case 6:
		w.from.report()
	case 7:
		w.to.report()
	case 8: // users come where the cluster lets them, and go
		w.use(rapid.Bool().Draw(t, "in to"))
	case 9:
		w.back = rapid.IntRange(0, 3).Draw(t, "back") == 0
		w.needsFrom = rapid.Bool().Draw(t, "needs from")
		w.needsTo = w.shared && rapid.Bool().Draw(t, "needs to")
	}
}

func (c *side) receive() {
	if c.ordered != c.order {
		c.done = ""
	}
	if c.ordered = c.order; c.removal && !c.hasPV {
		c.hasClaim = false
	}
}

func (c *side) report() { c.reported, c.reportedFor = c.done, c.ordered }

// use lets a user come to a cluster, or go. No user comes behind a fence, or without a volume.
func (w *world) use(inTo bool) {
	c := &w.from
	if inTo {
		c = &w.to
	}
	if c.users > 0 {
		c.users--
	} else if c.hasPV && c.hasClaim && !c.fenced {
		c.users++
	}
}

func (w *world) check(t *rapid.T) {
	if !w.shared && w.from.users > 0 && w.to.users > 0 {
		t.Fatalf("%s: both clusters attach the volume", w.state)
	}
	if mayAttach := func(c side) bool { return c.hasPV && c.hasClaim && !c.fenced }; !w.shared && mayAttach(w.from) && mayAttach(w.to) {
		t.Fatalf("%s: both clusters may attach the volume", w.state)
	}
	if (!w.from.hasPV || !w.from.hasClaim) && !w.to.hasPV {
		t.Fatalf("%s: no cluster has the volume", w.state)
	}
}

// finish lets everything work, and wants the transfer to end.
func (w *world) finish(t *rapid.T) {
	w.needsFrom, w.needsTo = false, false
	for range 200 {
		w.orders()
		for _, c := range []*side{&w.from, &w.to} {
			c.receive()
			c.users = 0
			c.act(t)
			c.report()
			c.receive()
		}
		w.check(t)
		w.step()
		if w.state == volumes.None || w.settled {
			if w.state == volumes.None && (w.to.hasPV || w.to.hasClaim) {
				t.Fatal("the volume is back, and the other cluster has it, too")
			}
			if w.settled && (w.from.hasPV || w.from.hasClaim) {
				t.Fatal("the volume has moved, and the first cluster has it, too")
			}
			return
		}
	}
	t.Fatalf("the transfer does not end: it is %s", w.state)
}
