// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/version"
	"github.com/patchbay-cni/patchbay/operator/internal/manifests"
)

// Namespace has the programs of Patchbay.
const Namespace = "patchbay-system"

// AgentSecretsNamespace is the other namespace in which the agent has rights.
const AgentSecretsNamespace = "patchbay-agent-secrets"

// Labels and annotations of the objects.
const (
	// InstallationLabel is on all objects that the operator applies; its value is the Installation's name. An
	// object that has it, and fields that the operator has applied, is removed when it is not rendered any more.
	InstallationLabel = "operator.patchbay.io/installation"
	// ManagedByLabel tells people who changes the object.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// TemplateAnnotation is on all Pods; its value is different for each template.
	TemplateAnnotation = "operator.patchbay.io/template"
	// ImageAnnotation is on all Pods; its value is the image of the program, also if admission has rewritten it.
	ImageAnnotation = "operator.patchbay.io/image"
)

// Manager is the field manager of the operator, and the value of ManagedByLabel.
const Manager = "patchbay-operator"

// Phase is a step of the installation. The objects of a phase are applied after those of the phases before.
type Phase int

// The phases in their order.
const (
	Definitions Phase = iota
	Namespaces
	// Policies come before the rights, and the programs, that they confine.
	Policies
	Rights
	Node
	Agent
	// Controller comes when no Pod of an older node daemon is left: an older daemon cannot write a network
	// whose status has fields of a newer controller.
	Controller
	Webhooks
	// Budgets select the Pods of the programs.
	Budgets
)

// Plan is what an Installation describes.
type Plan struct {
	// Objects in the order in which they are applied.
	Objects []Object
	// Node, Controller and Agent are the parts. Agent is nil if it is not enabled.
	Node, Controller, Agent *Part
}

// Object is one object and its phase.
type Object struct {
	*unstructured.Unstructured

	Phase Phase
}

// Part is a program.
type Part struct {
	// Kind and Name of the workload, which is in Namespace, and the name of the program's container.
	Kind, Name, Container string
	// Image of the container.
	Image string
	// Template is the value of TemplateAnnotation.
	Template string
	// Deadline is how long a Pod, or a step of a Deployment, may take.
	Deadline time.Duration
	// Account is the ServiceAccount of the Pods.
	Account string
	// MinReady is how long a Pod must be ready before it shows that the template works. Only the node daemon has it.
	MinReady time.Duration
	// MaxUnavailable is how many nodes may be without a daemon after the first one is ready. Only the node
	// daemon has it. OnDelete means that the user deletes the Pods.
	MaxUnavailable intstr.IntOrString
	OnDelete       bool
}

// New returns what an Installation describes, or all reasons why it cannot work.
func New(i *v1alpha1.Installation) (*Plan, error) {
	if v := i.Spec.Version; v != "" && v != version.String() {
		return nil, &VersionError{Want: v}
	}
	objects, err := manifests.Cluster()
	if err != nil {
		return nil, err
	}
	if i.Spec.Parts.PlacementAgent.Enabled {
		agent, err := manifests.Agent()
		if err != nil {
			return nil, err
		}
		objects = addMissing(objects, agent)
	}
	if isOff(i.Spec.Features.TenantRoles) {
		objects = slices.DeleteFunc(objects, isTenantRole)
	}
	r := &renderer{installation: i, objects: objects, plan: &Plan{}, accounts: map[string]string{nodeName: nodeName, controllerName: controllerName, agentName: agentName}}
	if err := r.parts(); err != nil {
		return nil, err
	}
	for _, o := range objects {
		phase, err := phaseOf(o)
		if err != nil {
			return nil, err
		}
		addOwnLabels(o)
		if _, ok := o.Object["aggregationRule"]; ok {
			delete(o.Object, "rules") // Kubernetes' own controller writes them
		}
		r.plan.Objects = append(r.plan.Objects, Object{Unstructured: o, Phase: phase})
	}
	slices.SortStableFunc(r.plan.Objects, func(a, b Object) int { return int(a.Phase) - int(b.Phase) })
	return r.plan, nil
}

// VersionError means that the Installation is for another version of the operator.
type VersionError struct {
	// Want is the version in the Installation.
	Want string
}

// Error implements error.
func (e *VersionError) Error() string {
	return fmt.Sprintf("spec.version: must be %s, the version of this operator: got %s. Nothing is changed until an operator of that version runs, or the field is removed", version.String(), e.Want)
}

// addMissing adds the objects that are not in the list yet, such as the namespace that all programs share.
func addMissing(all, more []*unstructured.Unstructured) []*unstructured.Unstructured {
	for _, o := range more {
		same := func(other *unstructured.Unstructured) bool {
			return o.GetKind() == other.GetKind() && o.GetNamespace() == other.GetNamespace() && o.GetName() == other.GetName()
		}
		if !slices.ContainsFunc(all, same) {
			all = append(all, o)
		}
	}
	return all
}

// isOff reports whether a switch, which is on by default, is off.
func isOff(feature *bool) bool { return feature != nil && !*feature }

// isTenantRole reports whether an object adds rights to Kubernetes' roles for people in namespaces.
func isTenantRole(o *unstructured.Unstructured) bool {
	labels := o.GetLabels()
	return o.GetKind() == "ClusterRole" && (labels["rbac.authorization.k8s.io/aggregate-to-edit"] != "" || labels["rbac.authorization.k8s.io/aggregate-to-view"] != "")
}

// phaseOf returns the phase of an object. A kind without one is a mistake of the operator.
func phaseOf(o *unstructured.Unstructured) (Phase, error) {
	switch o.GetKind() {
	case "CustomResourceDefinition":
		return Definitions, nil
	case "Namespace":
		return Namespaces, nil
	case "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
		return Rights, nil
	case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		return Policies, nil
	case "DaemonSet":
		return Node, nil
	case "Deployment":
		if o.GetName() == agentName {
			return Agent, nil
		}
		return Controller, nil
	case "Service":
		return Controller, nil
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		return Webhooks, nil
	case "PodDisruptionBudget":
		return Budgets, nil
	}
	return 0, errors.New("no phase for the kind " + o.GetKind())
}

func addOwnLabels(o *unstructured.Unstructured) {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[InstallationLabel], labels[ManagedByLabel] = v1alpha1.InstallationName, Manager
	o.SetLabels(labels)
}
