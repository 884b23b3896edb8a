// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// newLeave is the verb `cluster leave`.
func newLeave(f *factory) *cobra.Command {
	return &cobra.Command{
		Use:   "leave",
		Short: "Remove the agent from this cluster and keep the placed objects",
		Long: "Deletes patchbay-agent, its permissions, its credentials and its records from the cluster of the kubeconfig.\n" +
			"Objects that the hub placed in this cluster stay unchanged. The namespace " + agentNamespace + " stays too: other\n" +
			"components of Patchbay may run in it.",
		Example: "  kubectl --context=east patchbay cluster leave",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := f.placementClient()
			if err != nil {
				return err
			}
			if err := removeAgent(cmd.Context(), c); err != nil {
				return err
			}
			_, err = fmt.Fprintln(f.Out, "the agent is removed; the objects that it placed here are unchanged")
			return err
		},
	}
}

// removeAgent deletes the objects that join installed and those that the agent created for itself.
// It deletes the agent and then its permissions first, so that the agent does not act while its
// records are deleted.
func removeAgent(ctx context.Context, c client.Client) error {
	objects, err := agentManifests()
	if err != nil {
		return err
	}
	slices.Reverse(objects)
	for _, name := range []string{hubSecretName, certificateSecretName, tokenSecretName} {
		objects = append(objects, agentNamespaceObject("v1", "Secret", name))
	}
	objects = append(objects, agentNamespaceObject("coordination.k8s.io/v1", "Lease", "patchbay-agent"))
	for _, o := range objects {
		if o.GetKind() == "Namespace" && o.GetName() == agentNamespace {
			continue
		}
		err := c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	if err := removeDebugAccess(ctx, c); err != nil {
		return err
	}
	return deleteBindings(ctx, c)
}

// deleteBindings deletes the RoleBindings that gave the agent permissions in namespaces. RoleBindings
// that the hub placed have other names.
func deleteBindings(ctx context.Context, c client.Client) error {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("rbac.authorization.k8s.io/v1")
	list.SetKind("RoleBindingList")
	if err := c.List(ctx, list, client.MatchingLabels{v1alpha1.ManagedLabel: "true"}); err != nil {
		return fmt.Errorf("list RoleBindings: %w", err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		role, _, _ := unstructured.NestedString(o.Object, "roleRef", "name")
		if o.GetName() != "patchbay-agent" || role != "patchbay-agent-placeable" {
			continue
		}
		if err := client.IgnoreNotFound(c.Delete(ctx, o)); err != nil {
			return fmt.Errorf("delete RoleBinding %s/%s: %w", o.GetNamespace(), o.GetName(), err)
		}
	}
	return nil
}

// agentNamespaceObject returns an object of the agent's namespace, with its name only.
func agentNamespaceObject(apiVersion, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(agentNamespace)
	o.SetName(name)
	return o
}
