// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/text"
	"github.com/patchbay-cni/patchbay/internal/version"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
	"github.com/patchbay-cni/patchbay/operator/internal/rollout"
)

// findings are what one pass over the Installation has found.
type findings struct {
	// invalid is why nothing was applied: the spec cannot work.
	invalid error
	// applyErr is why not everything was applied.
	applyErr error
	// terminating are the objects that are being deleted although they were applied, each with what it waits for.
	terminating []string
	// missingAccounts are ServiceAccounts of templates that do not exist.
	missingAccounts []string
	// outdated are the nodes with Pods of an older node daemon for which the controller waits.
	outdated []string
	// unsettled are the nodes with Pods of the node daemon for which its new template waits.
	unsettled []string

	node, controller, agent rollout.Progress
}

// recheck returns when the next pass is due without any event.
func (f *findings) recheck() time.Duration {
	next := checkInterval
	if len(f.missingAccounts) > 0 || len(f.terminating) > 0 { // accounts of users are not watched
		next = anotherInterval
	}
	if len(f.unsettled) > 0 {
		next = settleInterval
	}
	for _, p := range []rollout.Progress{f.node, f.controller, f.agent} {
		if p.Recheck > 0 {
			next = min(next, p.Recheck+time.Second)
		}
	}
	return next
}

// settleInterval is how often the operator looks whether Pods are available, which no event tells.
const settleInterval = 2 * time.Second

// status returns the status of the Installation after this pass.
func (f *findings) status(i *v1alpha1.Installation, now metav1.Time) *v1alpha1.InstallationStatus {
	next := i.Status.DeepCopy()
	next.ObservedGeneration = i.Generation
	if !isOfAnotherVersion(f.invalid) {
		next.Version = version.String()
	}
	next.Parts = v1alpha1.PartStatuses{}
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&next.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: text.Truncate(message, maxMessage),
			ObservedGeneration: i.Generation, LastTransitionTime: now,
		})
	}
	status, reason, message := f.valid()
	set(v1alpha1.ConditionValid, status, reason, message)
	status, reason, message = f.applied()
	set(v1alpha1.ConditionApplied, status, reason, message)
	for _, p := range f.parts(&next.Parts, i.Spec.Parts.PlacementAgent.Enabled) {
		if p.progress == nil {
			meta.RemoveStatusCondition(&next.Conditions, p.condition)
			continue
		}
		if p.progress.Status == "" {
			set(p.condition, metav1.ConditionUnknown, reason, "not computed, because not all objects are applied")
			continue
		}
		*p.counts = &p.progress.Counts
		set(p.condition, p.progress.Status, p.progress.Reason, p.progress.Message)
	}
	status, reason, message = ready(next.Conditions)
	set(v1alpha1.ConditionReady, status, reason, message)
	return next
}

// maxMessage is shorter than a condition's message may be.
const maxMessage = 4096

// valid returns the condition of the spec.
func (f *findings) valid() (status metav1.ConditionStatus, reason, message string) {
	if f.invalid == nil && len(f.missingAccounts) > 0 {
		return metav1.ConditionTrue, v1alpha1.ReasonValid, fmt.Sprintf("The spec can work when these ServiceAccounts exist in the namespace %s, without which no Pod starts: %s",
			render.Namespace, strings.Join(f.missingAccounts, ", "))
	}
	if f.invalid == nil {
		return metav1.ConditionTrue, v1alpha1.ReasonValid, "The spec can work"
	}
	if isOfAnotherVersion(f.invalid) {
		return metav1.ConditionFalse, v1alpha1.ReasonVersionMismatch, f.invalid.Error()
	}
	return metav1.ConditionFalse, v1alpha1.ReasonInvalid, strings.ReplaceAll(f.invalid.Error(), "\n", "; ")
}

// isOfAnotherVersion reports whether an Installation is for another version of the operator.
func isOfAnotherVersion(invalid error) bool {
	_, isOther := errors.AsType[*render.VersionError](invalid)
	_, isRollback := errors.AsType[*rollbackError](invalid)
	return isOther || isRollback
}

// applied returns the condition of the objects.
func (f *findings) applied() (status metav1.ConditionStatus, reason, message string) {
	switch {
	case f.invalid != nil:
		_, reason, _ = f.valid()
		return metav1.ConditionFalse, reason, "Nothing is changed, because the spec is not valid"
	case errors.Is(f.applyErr, errAnother):
		return metav1.ConditionFalse, v1alpha1.ReasonAnotherInstallation, f.applyErr.Error()
	case errors.Is(f.applyErr, errEnding):
		return metav1.ConditionFalse, v1alpha1.ReasonRemovingNode, f.applyErr.Error()
	case f.applyErr != nil:
		return metav1.ConditionFalse, v1alpha1.ReasonApplyFailed, f.applyErr.Error()
	case len(f.terminating) > 0:
		return metav1.ConditionFalse, v1alpha1.ReasonTerminating, strings.Join(f.terminating, "; ")
	case len(f.unsettled) > 0:
		return metav1.ConditionFalse, v1alpha1.ReasonProgressing, fmt.Sprintf("The node daemon has just started on %d nodes: %s. Its new template is applied "+
			"when it has been ready there for long enough, so that the roll-out begins with one node", len(f.unsettled), shortList(f.unsettled))
	case len(f.outdated) > 0:
		return metav1.ConditionFalse, v1alpha1.ReasonWaitingForNode, f.waiting()
	}
	return metav1.ConditionTrue, v1alpha1.ReasonApplied, "All objects are applied"
}

func (f *findings) waiting() string {
	return fmt.Sprintf("%d Pods of the node daemon run another image: the controller is not changed before they are replaced on the nodes %s",
		len(f.outdated), shortList(f.outdated))
}

// shortList returns the first nodes, and how many there are beside them.
func shortList(nodes []string) string {
	names := strings.Join(nodes[:min(len(nodes), maxNames)], ", ")
	if more := len(nodes) - maxNames; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return names
}

// maxNames bounds the nodes in a message.
const maxNames = 10

// partFinding is a part, the condition for it, and where its counts belong.
type partFinding struct {
	condition string
	progress  *rollout.Progress
	counts    **v1alpha1.PartStatus
}

// parts returns the parts. The progress of one that is not installed is nil.
func (f *findings) parts(s *v1alpha1.PartStatuses, hasAgent bool) []partFinding {
	controller := f.controller
	if len(f.outdated) > 0 && controller.Status != "" {
		controller.Status, controller.Reason, controller.Message = metav1.ConditionFalse, v1alpha1.ReasonWaitingForNode, f.waiting()
	}
	agent := &f.agent
	if !hasAgent {
		agent = nil
	}
	return []partFinding{
		{v1alpha1.ConditionNode, &f.node, &s.Node},
		{v1alpha1.ConditionController, &controller, &s.Controller},
		{v1alpha1.ConditionPlacementAgent, agent, &s.PlacementAgent},
	}
}

// ready summarizes the other conditions: the first one that is not True is why the Installation is not ready.
func ready(conditions []metav1.Condition) (status metav1.ConditionStatus, reason, message string) {
	for _, kind := range []string{
		v1alpha1.ConditionValid, v1alpha1.ConditionApplied, v1alpha1.ConditionNode, v1alpha1.ConditionController, v1alpha1.ConditionPlacementAgent,
	} {
		c := meta.FindStatusCondition(conditions, kind)
		if c == nil || c.Status == metav1.ConditionTrue {
			continue
		}
		// A roll-out that has stopped says more than what waits for it.
		if n := meta.FindStatusCondition(conditions, v1alpha1.ConditionNode); c.Reason == v1alpha1.ReasonWaitingForNode && n != nil && n.Status != metav1.ConditionTrue {
			c = n
		}
		return metav1.ConditionFalse, c.Reason, c.Type + ": " + c.Message
	}
	return metav1.ConditionTrue, v1alpha1.ReasonReady, "All parts are ready"
}

// changedConditions returns the conditions whose status or reason has changed.
func changedConditions(before, after []metav1.Condition) []metav1.Condition {
	var changed []metav1.Condition
	for _, c := range after {
		if was := meta.FindStatusCondition(before, c.Type); was == nil || was.Status != c.Status || was.Reason != c.Reason {
			changed = append(changed, c)
		}
	}
	return changed
}
