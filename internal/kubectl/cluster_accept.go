// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/invite"
)

// newAccept is the verb that lets a cluster in.
func newAccept(ctx context.Context, a *kubeFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "accept NAME",
		Short: "Let a cluster's agent in at this hub",
		Long: "Sets spec.accepted of the Cluster at the hub, and makes the Cluster if there is none. The hub then\n" +
			"signs the certificate of whoever has a join token of that name.",
		Args: exactlyOneArgument(clusterArgument),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := invite.ValidateClusterName(args[0]); err != nil {
				return err
			}
			c, _, err := a.openPlacement()
			if err != nil {
				return err
			}
			if err := acceptCluster(ctx, c, args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is accepted\n", args[0])
			return err
		},
	}
}

// acceptCluster lets a cluster in; of a Cluster that is there it changes nothing else.
func acceptCluster(ctx context.Context, c client.Client, name string) error {
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSpec{Accepted: true}}
	err := c.Create(ctx, cluster, client.FieldOwner(fieldOwner))
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"accepted": true}})
	if err != nil {
		return fmt.Errorf("write patch: %w", err)
	}
	if err := c.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("accept %s: %w", name, err)
	}
	return nil
}
