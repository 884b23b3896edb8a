// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/attachments"
	"github.com/patchbay-cni/patchbay/operator/internal/apply"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
)

// Group are objects that are removed together.
type Group struct {
	// Name is their common name in messages, such as webhooks.
	Name string
	// Objects are not being deleted, and Ending are.
	Objects []metav1.PartialObjectMetadata
	Ending  []metav1.PartialObjectMetadata
	// StopsPrograms means that the programs' Pods end before the next group.
	StopsPrograms bool
}

// remove deletes the objects of a group, and waits until they are gone.
func (g *Group) remove() *Step {
	switch {
	case len(g.Objects) > 0:
		return &Step{Action: Delete, Reason: v1alpha1.ReasonRemovingPrograms, Message: "Removing " + g.Name, Objects: g.Objects}
	case len(g.Ending) > 0:
		message := "Waiting for the deletion of " + g.Name + ": " + names(g.Ending)
		if slices.ContainsFunc(g.Ending, func(o metav1.PartialObjectMetadata) bool { return len(o.Finalizers) > 0 }) {
			message += ". If the program of a finalizer does not run any more, remove the finalizer with kubectl edit"
		}
		return &Step{Action: Wait, Reason: v1alpha1.ReasonRemovingPrograms, Message: message}
	}
	return nil
}

// names returns the first objects, each as describe does, and the number of the rest.
func names(objects []metav1.PartialObjectMetadata) string {
	var all []string
	for i := range objects {
		all = append(all, describe(&objects[i]))
	}
	return attachments.Names(all)
}

// describe names an object, and the finalizers that its deletion waits for. RBAC allows control characters in names.
func describe(o *metav1.PartialObjectMetadata) string {
	name := nameOf(o)
	if o.DeletionTimestamp != nil && len(o.Finalizers) > 0 {
		name += " has " + attachments.Names(o.Finalizers)
	}
	return attachments.Shorten(name)
}

// nameOf returns the kind, namespace and name of an object.
func nameOf(o *metav1.PartialObjectMetadata) string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// appliedObjects reads the objects that the operator has applied: they have its label and its fields. Their authors choose
// both, so they may be forged.
type appliedObjects struct {
	client.Client

	// ending means that the namespace of the programs is being deleted. The operator may have no rights there, and its
	// objects go with it.
	ending bool
	// own are the objects that this version applies if all parts are enabled.
	own map[apply.Key]render.Object
	// denied are objects that the operator may not delete, and does not apply.
	denied []string
}

// newAppliedObjects returns a reader that has read nothing yet.
func newAppliedObjects(c client.Client, ending bool) (*appliedObjects, error) {
	all := &v1alpha1.Installation{}
	all.Spec.Parts.PlacementAgent = v1alpha1.PlacementAgentPart{Enabled: true, Cluster: "any"}
	plan, err := render.New(all)
	if err != nil {
		return nil, fmt.Errorf("render the objects of this version: %w", err)
	}
	a := &appliedObjects{Client: c, ending: ending, own: map[apply.Key]render.Object{}}
	for _, o := range plan.Objects {
		a.own[apply.KeyOf(o)] = o
	}
	return a, nil
}

// programs reads what was applied, except definitions and namespaces, in the order of removal.
func (a *appliedObjects) programs(ctx context.Context) ([]Group, error) {
	var groups []Group
	const rbac, admission = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
	kinds := func(group string, names ...string) []schema.GroupVersionKind {
		var all []schema.GroupVersionKind
		for _, name := range names {
			all = append(all, schema.GroupVersionKind{Group: group, Version: "v1", Kind: name})
		}
		return all
	}
	for _, g := range []struct {
		Group

		kinds []schema.GroupVersionKind
	}{
		// Without the controller, no program answers the webhooks.
		{Group{Name: "webhooks"}, kinds(admission, "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")},
		{Group{Name: "controller and agent", StopsPrograms: true}, slices.Concat(kinds("apps", "Deployment"), kinds("policy", "PodDisruptionBudget"), kinds("", "Service"))},
		// A program on a node that is cut off must lose its rights before the policies that confine it.
		{Group{Name: "bindings of rights"}, kinds(rbac, "ClusterRoleBinding", "RoleBinding")},
		{Group{Name: "rights"}, slices.Concat(kinds(rbac, "ClusterRole", "Role"), kinds("", "ServiceAccount"))},
		{Group{Name: "policies"}, kinds(admission, "ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy")},
	} {
		if err := a.read(ctx, &g.Group, g.kinds...); err != nil {
			return nil, err
		}
		groups = append(groups, g.Group)
	}
	return groups, nil
}

// definitions reads the CustomResourceDefinitions.
func (a *appliedObjects) definitions(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	g := Group{}
	err := a.read(ctx, &g, schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return slices.Concat(g.Objects, g.Ending), err
}

// read adds the objects of some kinds to a group.
func (a *appliedObjects) read(ctx context.Context, g *Group, kinds ...schema.GroupVersionKind) error {
	for _, kind := range kinds {
		for _, namespace := range namespacesOf(kind.Kind) {
			if a.ending && namespace == render.Namespace {
				continue
			}
			list := listOf(kind)
			if err := a.List(ctx, list, client.HasLabels{render.InstallationLabel}, client.InNamespace(namespace)); err != nil {
				return fmt.Errorf("list %s: %w", kind.Kind, err)
			}
			for i := range list.Items {
				o := list.Items[i]
				o.SetGroupVersionKind(kind)
				switch {
				case !apply.IsApplied(&o): // a copy that a user has made has the label only
				case !a.mayDelete(ctx, &o):
					a.denied = append(a.denied, describe(&o))
				case o.DeletionTimestamp != nil:
					g.Ending = append(g.Ending, o)
				default:
					g.Objects = append(g.Objects, o)
				}
			}
		}
	}
	return nil
}

// namespacesOf returns the namespaces in which the operator applies objects of a kind. Elsewhere, its label and fields are
// forged. Objects without a namespace have the empty one.
func namespacesOf(kind string) []string {
	switch kind {
	case "Deployment", "PodDisruptionBudget", "Service", "ServiceAccount":
		return []string{render.Namespace}
	case "Role", "RoleBinding":
		return []string{render.Namespace, render.AgentSecretsNamespace}
	}
	return []string{metav1.NamespaceAll}
}

func listOf(kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list
}

// mayDelete reports whether the operator may delete an object. One that this version does not apply is either of another
// version, or forged, to stop the uninstallation at an object that the operator has no right to delete. If the operator
// has lost the right to delete its own objects, the uninstallation must fail.
func (a *appliedObjects) mayDelete(ctx context.Context, o *metav1.PartialObjectMetadata) bool {
	if _, isOwn := a.own[apply.KeyOf(o)]; isOwn {
		return true
	}
	err := apply.Delete(ctx, a, o, client.Preconditions{UID: &o.UID}, client.DryRunAll)
	if apierrors.IsForbidden(err) {
		logr.FromContextOrDiscard(ctx).Info("Skipped an object that looks like one of the operator", "object", describe(o), "error", err.Error())
		return false
	}
	return true
}
