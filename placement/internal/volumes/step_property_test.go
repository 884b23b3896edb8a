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
	users           int  // Pods and attachments
	lost            bool // it is off, and an admin has declared that
	absent          bool // and has deleted its Cluster and its namespace
}

func (c *side) mayAttach() bool { return c.hasPV && c.hasClaim && !c.fenced && !c.lost }

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
	workloads          []*workload // in the end, when the hub moves the objects that use the claim
}

// workload is an object that uses the claim: what the hub has stored of it in From and To, and where a user wants it.
type workload struct {
	in   [2]v1alpha1.TargetState
	want int
}

// move lets the hub take the next step of a workload, as package migration does. A shared volume is made first.
func (u *workload) move(w *world) {
	sides := [2]*side{&w.from, &w.to}
	other := 1 - u.want
	switch u.in[u.want] {
	case "":
		u.in[u.want] = v1alpha1.TargetPending
	case v1alpha1.TargetDraining:
		u.in[u.want] = v1alpha1.TargetActive
	}
	switch u.in[other] {
	case v1alpha1.TargetPending:
		u.in[other] = ""
	case v1alpha1.TargetActive:
		u.in[other] = v1alpha1.TargetDraining
	}
	runs := u.in[u.want] == v1alpha1.TargetActive && sides[u.want].mayAttach()
	if u.in[other] == v1alpha1.TargetDraining && !sides[other].lost && (!w.shared || runs) {
		u.in[other] = ""
	}
	isFree := w.shared || u.in[other] == "" || sides[other].lost
	if u.in[u.want] == v1alpha1.TargetPending && isFree && volumes.IsIn(w.state, w.shared, u.want == 0) && !sides[u.want].lost {
		u.in[u.want] = v1alpha1.TargetActive
	}
}

// moveWorkloads moves all workloads, and sets what a step depends on of them.
func (w *world) moveWorkloads() {
	if len(w.workloads) == 0 {
		return
	}
	w.needsFrom, w.needsTo, w.back = false, false, true
	for _, u := range w.workloads {
		u.move(w)
		w.needsFrom = w.needsFrom || u.in[0] != "" && (w.shared || u.in[0] != v1alpha1.TargetPending)
		w.needsTo = w.needsTo || u.in[1] != ""
		w.back = w.back && u.want == 0
	}
}

// startPods starts Pods of the workloads where they may start, and ends others.
func (w *world) startPods() {
	for i, c := range []*side{&w.from, &w.to} {
		n := 0
		for _, u := range w.workloads {
			if u.in[i] == v1alpha1.TargetActive || u.in[i] == v1alpha1.TargetDraining {
				n++
			}
		}
		if c.lost {
			continue
		}
		if n < c.users || c.mayAttach() {
			c.users = n
		}
	}
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
		From: volumes.Side{
			Needed: w.needsFrom, Done: done(&w.from, volumes.FromAction(w.state, w.shared)), Gone: w.from.removal && !w.from.hasClaim,
			Lost: w.from.lost, Absent: w.from.absent,
		},
		To: volumes.Side{
			Lost: w.to.lost, Absent: w.to.absent, Needed: w.needsTo, Done: done(&w.to, volumes.ToAction(w.state)), Gone: w.to.removal && (!w.to.hasClaim || w.to.lost),
			Bound: done(&w.to, v1alpha1.VolumeBind),
		},
	})
	w.state, w.settled = out.State, w.settled || out.Settled
}

// At no time do two clusters attach a volume that only one may attach; no PersistentVolume is deleted without the
// policy Retain; the first cluster's objects stay until the other one has bound its claim; and from each point, with
// lost and late orders and reports, a transfer ends with all objects where users want them, however often these have
// changed their minds. That a cluster is declared lost ends it too.
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
		for range rapid.IntRange(0, 2).Draw(t, "workloads") {
			w.workloads = append(w.workloads, w.anyWorkload(t))
		}
		w.back = rapid.Bool().Draw(t, "back")
		for range rapid.IntRange(0, 20).Draw(t, "rounds before the last word") {
			if w.round(t) {
				return
			}
		}
		want := rapid.IntRange(0, 1).Draw(t, "last word")
		for _, u := range w.workloads {
			u.want = want
		}
		switch rapid.IntRange(0, 5).Draw(t, "lost") {
		case 0:
			w.from.lost, w.from.users = true, 0
		case 1:
			w.to.lost, w.to.users = true, 0
		}
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
	} else if c.mayAttach() {
		c.users++
	}
}

func (w *world) check(t *rapid.T) {
	if !w.shared && w.from.users > 0 && w.to.users > 0 {
		t.Fatalf("%s: both clusters attach the volume", w.state)
	}
	if !w.shared && w.from.mayAttach() && w.to.mayAttach() {
		t.Fatalf("%s: both clusters may attach the volume", w.state)
	}
	if (!w.from.hasPV || !w.from.hasClaim) && !w.to.hasPV {
		t.Fatalf("%s: no cluster has the volume", w.state)
	}
}

// anyWorkload returns a workload in a state of its own move that the state of the volume allows.
func (w *world) anyWorkload(t *rapid.T) *workload {
	u := &workload{want: rapid.IntRange(0, 1).Draw(t, "wants To")}
	states := []v1alpha1.TargetState{"", v1alpha1.TargetPending, v1alpha1.TargetActive, v1alpha1.TargetDraining}
	mayRunIn := [2]bool{true, true}
	switch w.state {
	case v1alpha1.VolumeBound:
	case v1alpha1.VolumeDiscarding, v1alpha1.VolumeRemoving:
		mayRunIn[0] = false
	default:
		mayRunIn[1] = false
	}
	for i, needed := range []bool{w.needsFrom, w.needsTo} {
		n := 1 // nothing is sent where it is not needed
		if needed && mayRunIn[i] {
			n = 3
		}
		u.in[i] = states[rapid.IntRange(0, n).Draw(t, "target")]
	}
	return u
}

// round lets everything happen once that does not wait, and reports whether the transfer has ended.
func (w *world) round(t *rapid.T) bool {
	w.moveWorkloads()
	w.orders()
	for _, c := range []*side{&w.from, &w.to} {
		if c.lost {
			continue
		}
		c.receive()
		c.users = min(c.users, len(w.workloads))
		c.act(t)
		c.report()
		c.receive()
	}
	w.startPods()
	w.check(t)
	w.step()
	return w.state == volumes.None || w.settled
}

// finish lets everything work but what is lost, and wants the transfer to end.
func (w *world) finish(t *rapid.T) {
	w.needsFrom, w.needsTo = false, false
	for range 200 {
		if w.round(t) {
			w.checkEnd(t)
			return
		}
	}
	switch {
	case w.from.lost && w.back && len(w.workloads) > 0, w.to.lost && !w.back: // nothing can be given to it before it returns, or a user takes the volume back
		return
	case w.from.lost && (w.state == v1alpha1.VolumeDiscarding || w.state == v1alpha1.VolumeRemoving): // until it returns, or an admin deletes its Cluster
		w.from.absent = true
		for range 10 {
			if w.round(t) {
				w.checkEnd(t)
				return
			}
		}
	}
	t.Fatalf("the transfer does not end: it is %s, of %d workloads", w.state, len(w.workloads))
}

func (w *world) checkEnd(t *rapid.T) {
	if w.state == volumes.None && !w.to.lost && (w.to.hasPV || w.to.hasClaim) {
		t.Fatal("the volume is back, and the other cluster has it, too")
	}
	if w.settled && !w.from.absent && (w.from.hasPV || w.from.hasClaim) {
		t.Fatal("the volume has moved, and the first cluster has it, too")
	}
}
