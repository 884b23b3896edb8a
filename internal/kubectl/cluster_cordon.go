// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// newCordon is the verb `cluster cordon`.
func newCordon(f *factory) *cobra.Command {
	return &cobra.Command{
		Use:   "cordon NAME",
		Short: "Keep new objects away from a cluster",
		Long:  "Sets spec.unschedulable of the Cluster at the hub. What the cluster has stays there: see cluster drain.",
		Args:  exactlyOneArgument(clusterArgument), ValidArgsFunction: firstArgument(f.clusterNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := f.placementClient()
			if err != nil {
				return err
			}
			if err := patchClusterSpec(cmd.Context(), c, args[0], map[string]any{"unschedulable": true}); err != nil {
				return err
			}
			_, err = fmt.Fprintf(f.Out, "%s is cordoned\n", args[0])
			return err
		},
	}
}

// newUncordon is the verb `cluster uncordon`.
func newUncordon(f *factory) *cobra.Command {
	endDrain := false
	cmd := &cobra.Command{
		Use:   "uncordon NAME",
		Short: "Let a cluster have new objects, and end its drain",
		Long: "Clears spec.unschedulable of the Cluster at the hub. With --end-drain it also removes spec.drain: the objects\n" +
			"that still run in the cluster stay there, and those that have left do not come back.",
		Args: exactlyOneArgument(clusterArgument), ValidArgsFunction: firstArgument(f.clusterNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := f.placementClient()
			if err != nil {
				return err
			}
			if err := uncordon(cmd.Context(), c, args[0], endDrain); err != nil {
				return err
			}
			_, err = fmt.Fprintf(f.Out, "%s is uncordoned\n", args[0])
			return err
		},
	}
	cmd.Flags().BoolVar(&endDrain, "end-drain", false, "also end the drain of the cluster")
	return cmd
}

func uncordon(ctx context.Context, c client.Client, name string, endDrain bool) error {
	cluster := &v1alpha1.Cluster{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
		return fmt.Errorf("get Cluster %s: %w", name, err)
	}
	spec := map[string]any{"unschedulable": nil}
	switch drain := cluster.Spec.Drain; {
	case endDrain:
		spec["drain"] = nil
	case drain != nil && drain.Mode == v1alpha1.DrainMove:
		return fmt.Errorf("cluster %s is being drained, and gets no new objects while it is: use --end-drain to end the drain, too", name)
	}
	return patchClusterSpec(ctx, c, name, spec)
}

// patchClusterSpec changes fields of the spec of a Cluster that exists; nil removes a field.
func patchClusterSpec(ctx context.Context, c client.Client, name string, spec map[string]any) error {
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	cluster := &v1alpha1.Cluster{}
	cluster.Name = name
	if err := c.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("change Cluster %s: %w", name, err)
	}
	return nil
}
