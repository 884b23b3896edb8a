// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/migration"
)

// step lets the mover take the targets one step on.
func (p *pass) step(ctx context.Context, a *v1alpha1.Assignment, w wanted) {
	targets := map[string]v1alpha1.Target{}
	for _, t := range a.Spec.Targets {
		targets[string(t.Cluster)] = t
	}
	for name := range w.replicas {
		if _, ok := targets[name]; !ok {
			targets[name] = v1alpha1.Target{Cluster: v1alpha1.ClusterName(name)}
		}
	}
	in := p.moverInput(w)
	if d := a.Spec.Decision; d.LastChangeTime != nil {
		in.DesiredSince = d.LastChangeTime.Time
	}
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		in.Targets = append(in.Targets, p.row(ctx, targets[name], w))
	}
	out := migration.Step(in)
	if p.done = out.Done; out.RequeueAfter > 0 {
		p.again(out.RequeueAfter)
	}
	a.Spec.Targets = nil
	for _, m := range out.Transitions {
		if m.State != migration.None {
			a.Spec.Targets = append(a.Spec.Targets, p.target(m, w))
		}
	}
	last := in.DesiredSince // the last step
	for _, t := range a.Spec.Targets {
		if t.LastTransitionTime.After(last) {
			last = t.LastTransitionTime.Time
		}
	}
	p.saidBlocked(out.Blocked, last)
}

// target is a row of the Assignment.
func (p *pass) target(m migration.Transition, w wanted) v1alpha1.Target {
	t := v1alpha1.Target{Cluster: v1alpha1.ClusterName(m.Cluster), State: v1alpha1.TargetState(m.State)}
	t.LastTransitionTime = &metav1.MicroTime{Time: m.Since}
	if p.replicated() {
		t.Replicas = new(int32(w.replicas[m.Cluster]))
	}
	if w.counted {
		t.RequestedReplicas = new(m.Requested)
	}
	return t
}

// row is what the mover knows of one cluster.
func (p *pass) row(ctx context.Context, t v1alpha1.Target, w wanted) migration.Target {
	name := string(t.Cluster)
	c := p.clusters[name]
	want, isWanted := w.replicas[name]
	r := migration.Target{ // the states of package mover and of the API have the same names
		Cluster: name, Wanted: isWanted, State: migration.State(t.State), Requested: int32(deref(t.RequestedReplicas)),
		Reachable: c != nil && reachable(c), NotInInventory: c == nil,
	}
	if w.counted {
		r.Desired = int32(want)
		if t.RequestedReplicas == nil && t.State == v1alpha1.TargetActive { // it was whole, and is divided now
			r.Requested = int32(deref(t.Replicas))
		}
	}
	if t.LastTransitionTime != nil {
		r.Since = t.LastTransitionTime.Time
	}
	if work := p.works[name]; work != nil {
		f := p.facts[name]
		r.Ready, r.Available, r.Total = f.ready, f.counts.Available, f.counts.Total
		// A hub that was killed may have stored what is asked and not sent it.
		r.ReportCurrent = f.current && (t.RequestedReplicas == nil || asks(work, *t.RequestedReplicas))
		if f.gone { // it is never made again there, whatever is asked
			r.ReportCurrent, r.Available, r.Total = true, 0, 0
		}
		r.Removed = t.State == v1alpha1.TargetRemoving && removed(work)
	} else if t.State == v1alpha1.TargetRemoving && !p.sent(name) || c == nil && t.State != "" {
		r.Removed = p.gone(ctx, name)
	}
	return r
}

// sent says that a Work was once written for a cluster. One that is missing then, with an order that
// was not reported to be done, was lost.
func (p *pass) sent(cluster string) bool { return p.lastPosition(cluster).Revision > 0 }

// moverInput is what the policy says of moves.
func (p *pass) moverInput(w wanted) migration.Input {
	in := migration.Input{Divided: w.counted, Now: p.now()}
	var total int32
	for _, n := range w.replicas {
		total += int32(n)
	}
	in.MaxSurge = total
	if p.wish == nil {
		in.NoPolicy = true
		return in
	}
	move := p.wish.Spec.Move
	in.BreakBeforeMake = move.Mode == v1alpha1.BreakBeforeMake
	in.ProceedAtDeadline = move.OnDeadline == v1alpha1.DeadlineProceed
	if move.Settle != nil {
		in.Settle = move.Settle.Duration
	}
	if move.Deadline != nil {
		in.Deadline = move.Deadline.Duration
	}
	in.MaxSurge = scaled(move.Surge, total, total, true)
	in.MaxUnavailable = scaled(move.Unavailable, total, 0, false)
	return in
}

// scaled is a number or a percentage of total.
func scaled(value *intstr.IntOrString, total, otherwise int32, up bool) int32 {
	if value == nil {
		return otherwise
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, int(total), up)
	if err != nil { // the schema lets no such value in
		return otherwise
	}
	return int32(min(max(n, 0), int(maxReplicas)))
}

// maxReplicas is what package divide takes.
const maxReplicas = 1_000_000
