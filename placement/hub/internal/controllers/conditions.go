// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// maxMessage is how long a condition's message may be.
const maxMessage = 1024

// conditions are what an Assignment is to say.
type conditions struct {
	list  []metav1.Condition
	wrong bool // a person's mistake keeps the object from being placed as wished
}

func (c *conditions) add(kind string, status bool, reason, message string) {
	s := metav1.ConditionFalse
	if status {
		s = metav1.ConditionTrue
	}
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage-3], "") + "..." // not cut within a character
	}
	c.list = append(c.list, metav1.Condition{Type: kind, Status: s, Reason: reason, Message: message})
}

// replace says of a condition that it is False, whatever was said of it before.
func (c *conditions) replace(kind, reason, message string) {
	c.list = slices.DeleteFunc(c.list, func(said metav1.Condition) bool { return said.Type == kind })
	c.add(kind, false, reason, message)
}

// merge keeps the times of conditions that stay as they are.
func (c *conditions) merge(before []metav1.Condition, generation int64) []metav1.Condition {
	var list []metav1.Condition
	for _, b := range before {
		list = append(list, *b.DeepCopy())
	}
	for _, n := range c.list {
		n.ObservedGeneration = generation
		meta.SetStatusCondition(&list, n)
	}
	return list
}

// saidPlaced says whether the targets are what people asked for.
func (p *pass) saidPlaced(mistake error, w wanted) {
	if m, ok := errors.AsType[*policy.Error](mistake); ok {
		p.said.wrong = true
		p.said.add(v1alpha1.ConditionPlaced, false, m.Reason, m.Error())
		return
	}
	switch {
	case w.short != "":
		p.said.add(v1alpha1.ConditionPlaced, false, w.reason, w.short)
	case len(w.replicas) == 0:
		p.said.add(v1alpha1.ConditionPlaced, true, v1alpha1.ReasonNoClustersRequested, "no cluster is asked for")
	default:
		p.said.add(v1alpha1.ConditionPlaced, true, v1alpha1.ReasonAsExpected, "by "+w.source)
	}
}

// blockedAfter is how long a move waits before that is reported: a healthy one waits for Pods
// to start.
const blockedAfter = 30 * time.Second

// saidBlocked says what a move waits for, once it has made no step for a while.
func (p *pass) saidBlocked(why string, since time.Time) {
	left := blockedAfter - p.now().Sub(since)
	if why != "" && left > 0 {
		p.again(left)
	}
	switch {
	case why != "" && left <= 0:
		p.said.add(v1alpha1.ConditionMoveBlocked, true, "Waiting", why)
	case p.done:
		p.said.add(v1alpha1.ConditionMoveBlocked, false, v1alpha1.ReasonAsExpected, "")
	default:
		p.said.add(v1alpha1.ConditionMoveBlocked, false, v1alpha1.ReasonProgressing, "")
	}
}

// saidRendered says whether every Work has the present object.
func (p *pass) saidRendered(mistake error) {
	stays, isPolicy := errors.AsType[*policy.Error](mistake)
	switch {
	case mistake == nil:
		p.said.add(v1alpha1.ConditionRendered, true, v1alpha1.ReasonAsExpected, "")
	case isPolicy:
		p.said.add(v1alpha1.ConditionRendered, false, stays.Reason, mistake.Error())
	case errors.Is(mistake, render.ErrTooLarge):
		p.said.add(v1alpha1.ConditionRendered, false, v1alpha1.ReasonTooLarge, mistake.Error())
	default:
		p.said.add(v1alpha1.ConditionRendered, false, v1alpha1.ReasonInvalidRule, mistake.Error())
	}
}

// tell makes an Event of each mistake that the Assignment does not say yet, and says
// whether there is any.
func (p *pass) tell() (mistaken bool) {
	for _, n := range p.said.list {
		blocked := n.Type == v1alpha1.ConditionMoveBlocked
		before := meta.FindStatusCondition(p.record.Status.Conditions, n.Type)
		if blocked != (n.Status == metav1.ConditionTrue) || // as it should be
			before != nil && before.Status == n.Status && before.Reason == n.Reason && (blocked || before.Message == n.Message) {
			continue
		}
		mistaken = true
		reason := n.Reason
		if blocked {
			reason = v1alpha1.ConditionMoveBlocked
		}
		if p.object != nil {
			p.events.Event(p.object, corev1.EventTypeWarning, reason, n.Message)
		}
	}
	return mistaken
}

// tellRefused makes an Event of each refusal of a cluster that the Assignment has not said
// before. It is told once it is stored, and so told once.
func (p *pass) tellRefused(before, now []v1alpha1.ClusterReport) {
	said := map[v1alpha1.ClusterName]string{}
	for i := range before {
		said[before[i].Cluster] = before[i].Message
	}
	for i := range now {
		r := &now[i]
		reason := p.facts[string(r.Cluster)].refused
		if p.object != nil && reason != "" && said[r.Cluster] != r.Message {
			p.events.Event(p.object, corev1.EventTypeWarning, reason, "in "+string(r.Cluster)+": "+r.Message)
		}
	}
}

// maxSummary is how many clusters a summary names.
const maxSummary = 8

// inShort says where an object is in one line, for tables.
func inShort(targets []v1alpha1.Target) string {
	var parts []string
	for i, t := range targets {
		if i == maxSummary {
			parts = append(parts, fmt.Sprintf("%d more", len(targets)-i))
			break
		}
		part := string(t.Cluster)
		if t.RequestedReplicas != nil {
			part += fmt.Sprintf("=%d", *t.RequestedReplicas)
		}
		if t.State != v1alpha1.TargetActive {
			part += " (" + string(t.State) + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}
