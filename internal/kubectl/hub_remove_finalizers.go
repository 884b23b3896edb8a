// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// newRemoveFinalizers is the verb `hub remove-finalizers`.
func newRemoveFinalizers(f *factory) *cobra.Command {
	return &cobra.Command{
		Use:   "remove-finalizers",
		Short: "Remove the hub's finalizer from all objects before you uninstall the hub",
		Long: "Removes the finalizer " + v1alpha1.PlacedFinalizer + " from all objects at the hub. Without this, nothing\n" +
			"removes the finalizer after patchbay-hub is uninstalled, and the objects cannot be deleted. Objects in the\n" +
			"clusters stay. The command fails while patchbay-hub runs.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := f.placementClient()
			if err != nil {
				return err
			}
			n, err := removeFinalizers(cmd.Context(), c)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(f.Out, "removed the finalizer of %d objects; now run: kubectl delete --ignore-not-found -k deployments/placement/hub\n", n)
			return err
		},
	}
}

// removeFinalizers removes the finalizer from every object that has an Assignment.
func removeFinalizers(ctx context.Context, c client.Client) (changed int, err error) {
	if err := checkHubStopped(ctx, c); err != nil {
		return 0, err
	}
	list := &v1alpha1.AssignmentList{}
	if err := c.List(ctx, list); err != nil {
		return 0, fmt.Errorf("list Assignments: %w", err)
	}
	for i := range list.Items {
		ref := list.Items[i].Spec.Object
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: ref.Group, Version: ref.Version, Kind: ref.Kind})
		err := c.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, o)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			continue // the object or its kind is deleted
		}
		before := o.DeepCopy()
		if err == nil && controllerutil.RemoveFinalizer(o, v1alpha1.PlacedFinalizer) {
			changed++
			err = c.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldOwner))
		}
		if client.IgnoreNotFound(err) != nil {
			return changed, fmt.Errorf("remove the finalizer of %s %s/%s (it is safe to run the command again): %w", ref.Kind, ref.Namespace, ref.Name, err)
		}
	}
	return changed, nil
}

// checkHubStopped returns an error while a hub runs, because the hub would add the finalizers again.
func checkHubStopped(ctx context.Context, c client.Client) error {
	lease := &coordinationv1.Lease{}
	err := c.Get(ctx, client.ObjectKey{Namespace: agentNamespace, Name: v1alpha1.HubFieldManager}, lease)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	s := lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return nil
	}
	if until := s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second); time.Now().Before(until) {
		return fmt.Errorf("patchbay-hub runs as %s (Lease %s/%s): end it first, and run the command again after %s",
			*s.HolderIdentity, agentNamespace, lease.Name, until.Format(time.TimeOnly))
	}
	return nil
}
