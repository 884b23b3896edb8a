// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/attachments"
	"github.com/patchbay-cni/patchbay/internal/text"
	"github.com/patchbay-cni/patchbay/operator/internal/apply"
)

// blockedDefinitions only has its facts read: from the beginning, the message names the objects whose finalizers will keep
// the definitions. It refuses nothing: a tenant could stop the uninstallation with a finalizer that it sets again and
// again. Kubernetes adds none to an object that is being deleted, so each needs to be removed only once at the end.
func blockedDefinitions(*Facts) *Step { return nil }

// definitions deletes the CustomResourceDefinitions, if the Installation requests it.
func definitions(f *Facts) *Step {
	if !f.RemoveDefinitions || len(f.Definitions) == 0 {
		return nil
	}
	if attached := f.pods(true); len(attached) > 0 {
		return &Step{Action: Wait, Reason: v1alpha1.ReasonPodsAttached, Message: fmt.Sprintf(
			"The definitions stay while %d Pods keep their interfaces: %s. Networks that are made again would give their addresses to others. Delete them, or remove the annotation %s",
			attachments.CountPods(attached), attachments.Describe(attached), v1alpha1.RemoveDefinitionsAnnotation)}
	}
	if nodes := underPods(f.Nodes); len(nodes) > 0 {
		return &Step{Action: Wait, Reason: v1alpha1.ReasonPodsAttached, Message: fmt.Sprintf(
			"The definitions stay, because Pods had interfaces on %d nodes when the node daemon ended: %s. Networks that are made again would give their addresses to others. Delete these Pods, and then the NodeNetworks of the nodes, or remove the annotation %s",
			len(nodes), attachments.Names(nodes), v1alpha1.RemoveDefinitionsAnnotation)}
	}
	step := &Step{Action: Wait, Reason: v1alpha1.ReasonRemovingDefinitions, Message: "Removing the definitions " + names(f.Definitions)}
	for i := range f.Definitions {
		if f.Definitions[i].DeletionTimestamp == nil {
			step.Action = Delete
			step.Objects = append(step.Objects, f.Definitions[i])
		}
	}
	return step
}

// underPods returns the nodes whose daemons have ended under Pods, and what they reported. They cannot report again.
func underPods(nodes []Node) []string {
	var found []string
	for i := range nodes {
		if n := &nodes[i]; n.UnderPods {
			found = append(found, n.describe()+": "+n.Message)
		}
	}
	return found
}

// maxBlocking bounds what a message has of an object: a tenant chooses its name and its finalizers.
const maxBlocking = 200

// blocking returns the objects of definitions that finalizers of other programs keep, and these finalizers.
func (a *appliedObjects) blocking(ctx context.Context, definitions []metav1.PartialObjectMetadata) ([]string, error) {
	var found []string
	for i := range definitions {
		own, ok := a.own[apply.KeyOf(&definitions[i])]
		if !ok { // the operator may not read the objects of another version's definitions
			continue
		}
		kind := kindOf(own.Unstructured)
		err := attachments.EachPage(ctx, a, pageSize, func() *metav1.PartialObjectMetadataList { return listOf(kind) }, func(list *metav1.PartialObjectMetadataList) {
			for k := range list.Items {
				o := &list.Items[k]
				o.SetGroupVersionKind(kind)
				if others := slices.DeleteFunc(slices.Clone(o.Finalizers), isRemovedBeforeDefinitions); len(others) > 0 {
					found = append(found, text.Truncate(nameOf(o)+" has "+attachments.Names(others), maxBlocking))
				}
			}
		})
		isGone := meta.IsNoMatchError(err) || apierrors.IsNotFound(err) // meanwhile, and so are its objects
		if err != nil && !isGone {
			return nil, fmt.Errorf("list %s: %w", definitions[i].Name, err)
		}
	}
	return found, nil
}

// kindOf returns the kind of a definition in its first version.
func kindOf(definition *unstructured.Unstructured) schema.GroupVersionKind {
	kind := schema.GroupVersionKind{}
	kind.Group, _, _ = unstructured.NestedString(definition.Object, "spec", "group")
	kind.Kind, _, _ = unstructured.NestedString(definition.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if len(versions) > 0 {
		version, _ := versions[0].(map[string]any)
		kind.Version, _ = version["name"].(string)
	}
	return kind
}

// isRemovedBeforeDefinitions reports whether the uninstallation, or Kubernetes, removes a finalizer.
func isRemovedBeforeDefinitions(finalizer string) bool {
	return slices.Contains([]string{v1.InUseFinalizer, v1.NodeFinalizer, metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents}, finalizer)
}
