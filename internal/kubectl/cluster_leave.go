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

// newLeave is the verb that takes the agent away.
func newLeave(ctx context.Context, a *kubeFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "leave",
		Short: "Take the agent out of this cluster; what runs here stays",
		Long: "Deletes patchbay-agent, its rights, its credentials and its records from the cluster of the kubeconfig.\n" +
			"What the hub placed here runs on, as it is. The namespace " + agentNamespace + " stays: more of Patchbay may\n" +
			"be in it.",
		Example: "  kubectl --context=east patchbay cluster leave",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := a.openPlacement()
			if err != nil {
				return err
			}
			if err := removeAgent(ctx, c); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "the agent is gone; what it placed here is as it was")
			return err
		},
	}
}

// removeAgent deletes what join installed and what the agent made for itself: the agent first
// and its rights next, so that it does nothing more while its records go.
func removeAgent(ctx context.Context, c client.Client) error {
	objects, err := agentManifests()
	if err != nil {
		return err
	}
	slices.Reverse(objects)
	objects = append(objects, agentNamespaceObject("v1", "Secret", hubSecretName), agentNamespaceObject("v1", "Secret", certificateSecretName), agentNamespaceObject("v1", "Secret", tokenSecretName),
		agentNamespaceObject("coordination.k8s.io/v1", "Lease", "patchbay-agent"))
	for _, o := range objects {
		if o.GetKind() == "Namespace" && o.GetName() == agentNamespace {
			continue
		}
		err := c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return deleteBindings(ctx, c)
}

// deleteBindings deletes the RoleBindings by which the agent had rights in namespaces. Those
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

// agentNamespaceObject is an object of the agent's namespace.
func agentNamespaceObject(apiVersion, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(agentNamespace)
	o.SetName(name)
	return o
}
