// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// exportedObject is one object of an export.
type exportedObject struct {
	assignment *v1alpha1.Assignment
	// follows is an exported object that needs this one; "" for an object that arguments select.
	follows string
	// refused is why it cannot be exported; "" if it can.
	refused string
}

func (o *exportedObject) name() string { return placedName(&o.assignment.Spec.Object) }

// placedName returns the name of a placed object for messages.
func placedName(o *v1alpha1.ObjectReference) string { return objectName(o.Kind, o.Namespace, o.Name) }

// clusters returns the names of the clusters that have the object.
func (o *exportedObject) clusters() []string {
	var names []string
	for _, t := range o.assignment.Spec.Targets {
		names = append(names, string(t.Cluster))
	}
	return names
}

// exportPlan is what an export does.
type exportPlan struct {
	objects []*exportedObject
	// pinned stay at the hub, because objects that are not exported need them, too. They get an annotation with the
	// clusters where they are.
	pinned      []*exportedObject
	unreachable map[string]bool // clusters
}

// exportPlanner makes the plan of an export.
type exportPlanner struct {
	hub     client.Client
	cluster string // of the flag --in; may be empty
	kindOf  func(word string) (*meta.RESTMapping, error)
}

// Plan returns what an export of the selected objects does.
func (p *exportPlanner) Plan(ctx context.Context, arguments []objectArgument) (*exportPlan, error) {
	reachable, err := reachableClusters(ctx, p.hub)
	if err != nil {
		return nil, err
	}
	plan := &exportPlan{unreachable: map[string]bool{}}
	for name, up := range reachable {
		plan.unreachable[name] = !up
	}
	for _, namespace := range namespacesOf(arguments) {
		var list v1alpha1.AssignmentList
		if err := p.hub.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list Assignments in namespace %s: %w", namespace, err)
		}
		selected, err := p.selected(namespace, arguments, list.Items)
		if err != nil {
			return nil, err
		}
		plan.objects = append(plan.objects, selected...)
		plan.addDependencies(selected, list.Items)
	}
	return plan, nil
}

// namespacesOf returns the namespaces of arguments, each once.
func namespacesOf(arguments []objectArgument) []string {
	var names []string
	for _, a := range arguments {
		names = append(names, a.namespace)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// selected returns the objects of a namespace that arguments select.
func (p *exportPlanner) selected(namespace string, arguments []objectArgument, all []v1alpha1.Assignment) ([]*exportedObject, error) {
	var found []*exportedObject
	for _, a := range arguments {
		if a.namespace != namespace {
			continue
		}
		var mapping *meta.RESTMapping
		if a.kind != "" {
			var err error
			if mapping, err = p.kindOf(a.kind); err != nil {
				return nil, err
			}
		}
		exists := false
		for i := range all {
			o := all[i].Spec.Object
			matches := mapping == nil || o.Group == mapping.GroupVersionKind.Group && o.Kind == mapping.GroupVersionKind.Kind
			if !matches || a.name != "" && a.name != o.Name || len(all[i].Spec.Targets) == 0 {
				continue
			}
			exists = true
			if !slices.ContainsFunc(found, func(e *exportedObject) bool { return e.assignment == &all[i] }) {
				if e := p.examine(&all[i]); e != nil {
					found = append(found, e)
				}
			}
		}
		if a.name != "" && !exists {
			return nil, fmt.Errorf("%s is in no cluster, or is not at this hub: there is nothing to export", objectName(mapping.GroupVersionKind.Kind, a.namespace, a.name))
		}
	}
	return found, nil
}

// examine returns an object of the export; nil if it is not in the cluster of the flag --in.
func (p *exportPlanner) examine(a *v1alpha1.Assignment) *exportedObject {
	o := &exportedObject{assignment: a}
	clusters := o.clusters()
	if p.cluster != "" && !slices.Contains(clusters, p.cluster) {
		return nil
	}
	if p.cluster != "" && len(clusters) > 1 {
		o.refused = fmt.Sprintf("it is in %s: move it to %s first, or leave --in out", strings.Join(clusters, ", "), p.cluster)
	}
	for _, t := range a.Spec.Targets {
		if (t.State == v1alpha1.TargetDraining || t.State == v1alpha1.TargetRemoving || t.State == v1alpha1.TargetLost) && !isLetGo(a) {
			o.refused = fmt.Sprintf("it is leaving %s (%s): wait for the end of its move, because that removes it there", t.Cluster, t.State)
		}
	}
	return o
}

// isLetGo reports whether all clusters of an object are letting go of it, as after an export that was interrupted.
func isLetGo(a *v1alpha1.Assignment) bool {
	return a.Spec.Decision.OnDelete == v1alpha1.OnDeleteOrphan &&
		!slices.ContainsFunc(a.Spec.Targets, func(t v1alpha1.Target) bool { return t.State != v1alpha1.TargetRemoving })
}

// addDependencies adds what the selected objects need: to the export if no other placed object needs it, and
// otherwise to those that stay.
func (p *exportPlan) addDependencies(selected []*exportedObject, all []v1alpha1.Assignment) {
	isExported := func(a *v1alpha1.Assignment) bool {
		return slices.ContainsFunc(p.objects, func(e *exportedObject) bool { return e.assignment == a })
	}
	for at := 0; at < len(selected); at++ {
		of := selected[at]
		for _, d := range of.assignment.Spec.Dependencies {
			i := slices.IndexFunc(all, func(a v1alpha1.Assignment) bool { return isDependency(&a, d) })
			if i < 0 || isExported(&all[i]) || len(all[i].Spec.Targets) == 0 {
				continue
			}
			dependency := &exportedObject{assignment: &all[i], follows: of.name()}
			if other := neededBy(all, d, isExported); other != "" {
				dependency.follows = other
				if !slices.ContainsFunc(p.pinned, func(e *exportedObject) bool { return e.assignment == &all[i] }) {
					p.pinned = append(p.pinned, dependency)
				}
				continue
			}
			p.objects = append(p.objects, dependency)
			selected = append(selected, dependency)
		}
	}
}

// isDependency reports whether an Assignment is that of a dependency.
func isDependency(a *v1alpha1.Assignment, d v1alpha1.DependencyReference) bool {
	o := a.Spec.Object
	return o.Group == d.Group && o.Kind == d.Kind && o.Name == d.Name
}

// neededBy returns an object that is not exported and needs a dependency; "" if there is none.
func neededBy(all []v1alpha1.Assignment, d v1alpha1.DependencyReference, isExported func(*v1alpha1.Assignment) bool) string {
	for i := range all {
		if len(all[i].Spec.Targets) > 0 && !isExported(&all[i]) && slices.Contains(all[i].Spec.Dependencies, d) {
			return placedName(&all[i].Spec.Object)
		}
	}
	return ""
}

// isRefused reports whether an object cannot be exported.
func (p *exportPlan) isRefused() bool {
	return slices.ContainsFunc(p.objects, func(o *exportedObject) bool { return o.refused != "" })
}

// print prints the plan.
func (p *exportPlan) print(w io.Writer) error {
	out := bufio.NewWriter(w)
	for _, o := range p.objects {
		if o.refused != "" {
			fmt.Fprintf(out, "%s: refused: %s\n", o.name(), o.refused)
			continue
		}
		note := ""
		if o.follows != "" {
			note = " (only " + o.follows + " needs it)"
		}
		for _, cluster := range o.clusters() {
			if p.unreachable[cluster] {
				note += fmt.Sprintf("; %s is not reachable, and lets go of it when it is back", cluster)
			}
		}
		fmt.Fprintf(out, "%s: continues in %s, and is deleted at the hub%s\n", o.name(), strings.Join(o.clusters(), ", "), note)
	}
	for _, o := range p.pinned {
		fmt.Fprintf(out, "%s: stays at the hub for %s, because %s needs it\n", o.name(), strings.Join(o.clusters(), ", "), o.follows)
	}
	return out.Flush()
}
