// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/attachments"
)

// Action is what a Step does.
type Action string

// The actions.
const (
	// Wait does nothing: a user, Kubernetes or a node has to act first.
	Wait Action = "wait"
	// RequestCleanUp annotates the DaemonSet.
	RequestCleanUp Action = "request clean-up"
	// Delete deletes Step.Objects, in the foreground if Step.Foreground.
	Delete Action = "delete"
	// RemoveFinalizers removes Patchbay's finalizers from Step.Objects and Step.DanmEps.
	RemoveFinalizers Action = "remove finalizers"
	// Finish does nothing: Uninstaller.Finish ends the uninstallation when the step is reported. Step.Objects are what is
	// deleted then.
	Finish Action = "finish"
)

// Step is what is done next, and what the Installation reports meanwhile.
type Step struct {
	Action          Action
	Reason, Message string
	// Objects that the action is for. Foreground waits for their dependents.
	Objects    []metav1.PartialObjectMetadata
	Foreground bool
	// DanmEps that the action is for. Orphans are the ones that are deleted, too.
	DanmEps, Orphans []attachments.Attachment
}

// stage is a part of the uninstallation.
type stage struct {
	// needs are the facts that it depends on, beside those of earlier stages.
	needs []fact
	// next returns its step, or nil if it is done.
	next func(f *Facts) *Step
}

// stages returns the stages in their order.
func stages() []stage {
	return []stage{
		{nil, requestCleanUp},
		{[]fact{daemons}, stopDaemons},
		{[]fact{reported}, reports},
		{[]fact{attached}, lateAttachedPods},
		{[]fact{applied}, programs},
		{[]fact{stopped, protected}, finalizers},
		{nil, namespace},
		{[]fact{defined}, definitions},
	}
}

// Next returns the next step. It depends on nothing but the facts.
func Next(f *Facts) Step {
	step, _ := next(f, func(...fact) error { return nil })
	return step
}

// next returns the next step. It calls read for the facts before it uses them.
func next(f *Facts, read func(...fact) error) (Step, error) {
	if err := read(installed); err != nil {
		return Step{}, err
	}
	all := stages()
	switch {
	case f.Another != "":
		all = nil
	case isChecked(f):
		all = append([]stage{{[]fact{attached}, attachedPods}, {[]fact{daemons, reported}, podsWithoutDanmEp}}, all...)
	case f.RemoveDefinitions && f.daemonsRun():
		// Once the daemons are gone, no program reports whether these Pods are.
		all = append([]stage{{[]fact{daemons, reported}, podsWithoutDanmEp}}, all...)
	}
	if f.Another == "" && f.RemoveDefinitions && f.daemonsRun() {
		all = append([]stage{{[]fact{daemons, defined}, blockedDefinitions}}, all...)
	}
	step := (*Step)(nil)
	for i := 0; i < len(all) && step == nil; i++ {
		if err := read(all[i].needs...); err != nil {
			return Step{}, err
		}
		step = all[i].next(f)
	}
	if step == nil {
		step = finish(f)
	}
	step.Message += f.notes(step.Reason)
	return *step, nil
}

// notes are what every message has: annotations that do not count, what nodes have kept, and from then on the nodes
// that force has left behind.
func (f *Facts) notes(reason string) string {
	notes := slices.Clone(f.Ignored)
	if f.Force && f.Another == "" && reason != v1alpha1.ReasonRemovingNode {
		if left := f.left(); len(left) > 0 {
			notes = append(notes, "CNI configuration and host links may stay on nodes that have not reported: "+attachments.Names(left))
		}
	}
	if kept := f.kept(); f.Another == "" && len(kept) > 0 {
		notes = append(notes, "Left on nodes that have reported: "+attachments.Names(kept))
	}
	if f.Another == "" {
		notes = append(notes, f.foreignNotes()...)
	}
	if len(notes) == 0 {
		return ""
	}
	return ". " + strings.Join(notes, ". ")
}

// foreignNotes name what the operator has not applied, and leaves alone.
func (f *Facts) foreignNotes() []string {
	var notes []string
	if len(f.Foreign) > 0 {
		notes = append(notes, "Pods that neither the DaemonSet patchbayd nor a ReplicaSet owns are not waited for. Delete them if they run a program of Patchbay: "+attachments.Names(f.Foreign))
	}
	if len(f.Others) > 0 {
		notes = append(notes, "Deployments that the operator has not applied stay: "+attachments.Names(f.Others)+
			". To remove an agent of kubectl patchbay cluster join, run kubectl patchbay cluster leave")
	}
	if len(f.Denied) > 0 {
		notes = append(notes, "Objects that this version of the operator does not apply, and may not delete, stay. Delete them if another version has applied them: "+attachments.Names(f.Denied))
	}
	if len(f.Blocking) > 0 {
		notes = append(notes, "Finalizers of other programs keep objects of the definitions: "+attachments.Names(f.Blocking)+
			". If such a program does not run any more, remove its finalizer with kubectl edit")
	}
	return notes
}

// kept returns what nodes that are cleaned up have not removed.
func (f *Facts) kept() []string {
	var kept []string
	for i := range f.Nodes {
		if n := &f.Nodes[i]; n.CleanedUp && n.Message != v1alpha1.CleanUpComplete {
			kept = append(kept, n.Name+": "+n.Message)
		}
	}
	return kept
}

// isChecked reports whether nothing is removed under attached Pods: the daemons run, and the uninstallation is not forced.
func isChecked(f *Facts) bool { return f.daemonsRun() && !f.Force }

// daemonsRun reports whether the daemons run, and report.
func (f *Facts) daemonsRun() bool { return f.DaemonSet != nil && f.DaemonSet.DeletionTimestamp == nil }

// attachedPods refuses the uninstallation before anything is removed.
func attachedPods(f *Facts) *Step {
	if attached := f.pods(true); len(attached) > 0 {
		return &Step{Action: Wait, Reason: v1alpha1.ReasonPodsAttached, Message: fmt.Sprintf(
			"Nothing is removed while %d Pods are attached to networks: %s. Delete them, or uninstall with --force: then they keep their interfaces",
			attachments.CountPods(attached), attachments.Describe(attached))}
	}
	gone := f.pods(false)
	if len(gone) == 0 {
		return nil
	}
	return &Step{Action: Wait, Reason: v1alpha1.ReasonDetachingPods, Message: fmt.Sprintf(
		"Waiting for nodes to detach %d Pods that are gone: %s. If a node does not run any more, delete its Node, or uninstall with --force",
		attachments.CountPods(gone), attachments.Describe(gone))}
}

// podsWithoutDanmEp refuses the uninstallation because of Pods of which only their nodes know.
func podsWithoutDanmEp(f *Facts) *Step {
	var nodes []string
	for i := range f.Nodes {
		if n := &f.Nodes[i]; n.WithoutDanmEp != "" {
			nodes = append(nodes, n.describe()+": "+n.WithoutDanmEp)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	otherwise := "uninstall with --force: then they keep their interfaces"
	if f.Force {
		otherwise = fmt.Sprintf("remove the annotation %s: networks that are made again would give their addresses to others", v1alpha1.RemoveDefinitionsAnnotation)
	}
	return &Step{Action: Wait, Reason: v1alpha1.ReasonPodsAttached, Message: fmt.Sprintf(
		"Nothing is removed while Pods are attached without a DanmEp on %d nodes: %s. Delete them, or %s. %s",
		len(nodes), attachments.Names(nodes), otherwise, attachments.OfSilentNodes)}
}

// requestCleanUp makes the daemons clean up: it annotates the DaemonSet, and then deletes it. In the foreground, so
// that each daemon can still read the annotation.
func requestCleanUp(f *Facts) *Step {
	if f.DaemonSet == nil || f.DaemonSet.DeletionTimestamp != nil {
		return nil
	}
	const message = "The node daemons are told to clean up"
	if !f.DaemonSet.Requested {
		return &Step{Action: RequestCleanUp, Reason: v1alpha1.ReasonRemovingNode, Message: message}
	}
	return &Step{
		Action: Delete, Reason: v1alpha1.ReasonRemovingNode, Message: message,
		Objects: []metav1.PartialObjectMetadata{f.DaemonSet.PartialObjectMetadata}, Foreground: true,
	}
}

// stopDaemons waits until the daemons have ended. With force, it does not wait for nodes that are not ready, nor for
// Pods that take too long.
func stopDaemons(f *Facts) *Step {
	var waiting []string
	for i := range f.Nodes {
		n := &f.Nodes[i]
		isLeft := f.Force && (!n.Ready || n.Overdue)
		if n.Running && !isLeft {
			waiting = append(waiting, n.describe())
		}
	}
	if len(waiting) > 0 {
		return &Step{Action: Wait, Reason: v1alpha1.ReasonRemovingNode, Message: fmt.Sprintf(
			"Waiting for the node daemon to clean up on %d nodes: %s", len(waiting), attachments.Names(waiting))}
	}
	if f.DaemonSet == nil || f.DaemonSet.DeletionTimestamp == nil {
		return nil
	}
	if f.Force && slices.Contains(f.DaemonSet.Finalizers, metav1.FinalizerDeleteDependents) {
		// It would stay as long as a Pod of a node that is left, and no later installation could start a daemon.
		return &Step{
			Action: Delete, Reason: v1alpha1.ReasonRemovingNode, Message: "Removing the DaemonSet before its last Pods",
			Objects: []metav1.PartialObjectMetadata{f.DaemonSet.PartialObjectMetadata},
		}
	}
	return &Step{Action: Wait, Reason: v1alpha1.ReasonRemovingNode, Message: "Waiting for Kubernetes to remove the DaemonSet"}
}

func (n *Node) describe() string {
	if !n.Ready {
		return n.Name + " (NotReady)"
	}
	return n.Name
}

// reports waits for the report of each node. A daemon that has ended does not start again.
func reports(f *Facts) *Step {
	if left := f.left(); !f.Force && len(left) > 0 {
		return &Step{Action: Wait, Reason: v1alpha1.ReasonNodesNotCleanedUp, Message: fmt.Sprintf(
			"%d of %d nodes have not reported that they are cleaned up: %s. Remove CNI configuration and host links there, and delete their NodeNetworks, or uninstall with --force",
			len(left), len(f.Nodes), attachments.Names(left))}
	}
	return nil
}

// left names the nodes that have not reported that they are cleaned up.
func (f *Facts) left() []string {
	var left []string
	for i := range f.Nodes {
		n := &f.Nodes[i]
		switch {
		case n.CleanedUp:
		case n.Message != "":
			left = append(left, n.describe()+": "+n.Message)
		default:
			left = append(left, n.describe())
		}
	}
	return left
}

// lateAttachedPods waits for Pods that were attached after the first check, or whose nodes have lost their daemon
// before it. Their DanmEps stay until finalizers deletes them.
func lateAttachedPods(f *Facts) *Step {
	if attached := f.pods(true); !f.Force && len(attached) > 0 {
		return &Step{Action: Wait, Reason: v1alpha1.ReasonPodsAttached, Message: fmt.Sprintf(
			"The node daemons are gone, and %d Pods were attached meanwhile: %s. Delete them, or uninstall with --force: then they keep their interfaces",
			attachments.CountPods(attached), attachments.Describe(attached))}
	}
	return nil
}

// programs removes the programs, group by group.
func programs(f *Facts) *Step {
	for i := range f.Programs {
		g := &f.Programs[i]
		if step := g.remove(); step != nil {
			return step
		}
		if g.StopsPrograms && len(f.ProgramPods) > 0 {
			return &Step{Action: Wait, Reason: v1alpha1.ReasonRemovingPrograms, Message: "Waiting for Pods to end: " + attachments.Names(f.ProgramPods) +
				". If a Pod stays, its ReplicaSet has lost its Deployment: delete the ReplicaSet"}
		}
	}
	return nil
}

// finalizers removes those of Patchbay, so that networks, DanmEps and namespaces can be deleted without it. A DanmEp
// whose Pod is gone is deleted only if no container of it can run: otherwise it keeps its address for a later
// installation. DANM's DanmEps have no finalizer, and stay as they are.
func finalizers(f *Facts) *Step {
	step := &Step{Action: RemoveFinalizers, Reason: v1alpha1.ReasonRemovingFinalizers, Objects: f.Protected}
	for i := range f.Attached {
		switch a := f.Attached[i]; {
		case !a.HasFinalizer:
		case !a.PodExists && f.Stopped[a.Node]:
			step.Orphans = append(step.Orphans, a)
		default:
			step.DanmEps = append(step.DanmEps, a)
		}
	}
	danmEps := len(step.DanmEps) + len(step.Orphans)
	if len(f.Protected)+danmEps == 0 {
		return nil
	}
	step.Message = fmt.Sprintf("Removing the finalizers %s and %s from %d networks and %d DanmEps", v1.InUseFinalizer, v1.NodeFinalizer, len(f.Protected), danmEps)
	return step
}

// namespace waits for the namespace of the programs if a user has deleted it. That may need the finalizers' removal.
func namespace(f *Facts) *Step {
	if !f.NamespaceEnding {
		return nil
	}
	return &Step{Action: Wait, Reason: v1alpha1.ReasonRemovingPrograms, Message: "Waiting for the deletion of the namespace patchbay-system"}
}

// finish ends the uninstallation.
func finish(f *Facts) *Step {
	if f.Another != "" {
		return &Step{Action: Finish, Reason: v1alpha1.ReasonAnotherInstallation, Message: "Nothing is removed, because another installation runs: " + f.Another}
	}
	message := "Patchbay is removed. CustomResourceDefinitions and networks stay"
	if f.RemoveDefinitions {
		message = "Patchbay is removed, with its CustomResourceDefinitions"
	}
	if attached := f.pods(true); len(attached) > 0 {
		message += fmt.Sprintf(". %d Pods keep their interfaces: %s", attachments.CountPods(attached), attachments.Describe(attached))
	}
	if gone := f.pods(false); len(gone) > 0 && !f.RemoveDefinitions {
		message += fmt.Sprintf(". The DanmEps of %d Pods that are gone keep their addresses, because no node has reported that their containers have ended: %s",
			attachments.CountPods(gone), attachments.Describe(gone))
	}
	step := &Step{Action: Finish, Reason: v1alpha1.ReasonUninstalled, Message: message}
	// A daemon that still runs would stop to send to the nodes of reports that are gone.
	if !slices.ContainsFunc(f.Nodes, func(n Node) bool { return n.Running }) {
		step.Objects = f.Reports
	}
	return step
}
