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

// newAccept is the verb `cluster accept`.
func newAccept(f *factory) *cobra.Command {
	return &cobra.Command{
		Use:   "accept NAME",
		Short: "Accept a cluster at this hub",
		Long: "Sets spec.accepted of the Cluster at the hub, and creates the Cluster if it does not exist. The hub\n" +
			"then signs the certificate of an agent that has a join token of that name.",
		Args:              exactlyOneArgument(clusterArgument),
		ValidArgsFunction: firstArgument(f.clusterNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := invite.ValidateClusterName(args[0]); err != nil {
				return err
			}
			c, _, err := f.placementClient()
			if err != nil {
				return err
			}
			if err := acceptCluster(cmd.Context(), c, args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(f.Out, "%s is accepted\n", args[0])
			return err
		},
	}
}

// acceptCluster sets spec.accepted, and no other field of a Cluster that exists.
func acceptCluster(ctx context.Context, c client.Client, name string) error {
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSpec{Accepted: true}}
	err := c.Create(ctx, cluster, client.FieldOwner(fieldOwner))
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"accepted": true}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if err := c.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("accept Cluster %s: %w", name, err)
	}
	return nil
}
