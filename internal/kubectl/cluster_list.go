// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// newClusterList is the verb that shows the clusters.
func newClusterList(ctx context.Context, a *kubeFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the clusters of this hub, and what is to be done about them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := a.openPlacement()
			if err != nil {
				return err
			}
			list := &v1alpha1.ClusterList{}
			if err := c.List(ctx, list); err != nil {
				return fmt.Errorf("list Clusters: %w", err)
			}
			return printClusters(cmd.OutOrStdout(), list.Items)
		},
	}
}

// printClusters prints a table; the last column says what does not go well.
func printClusters(out io.Writer, clusters []v1alpha1.Cluster) error {
	if len(clusters) == 0 {
		_, err := fmt.Fprintln(out, "no cluster has joined: see kubectl patchbay hub token --help")
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	rows := []string{"NAME\tACCEPTED\tREACHABLE\tOBJECTS\tREPLICAS\tVERSION\tNOTE"}
	for i := range clusters {
		rows = append(rows, clusterRow(&clusters[i]))
	}
	if _, err := fmt.Fprintln(t, strings.Join(rows, "\n")); err != nil {
		return err
	}
	return t.Flush()
}

// clusterRow is one cluster's line.
func clusterRow(c *v1alpha1.Cluster) string {
	assigned, versions := v1alpha1.Assigned{}, v1alpha1.Versions{}
	if c.Status.Assigned != nil {
		assigned = *c.Status.Assigned
	}
	if c.Status.Versions != nil {
		versions = *c.Status.Versions
	}
	return fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%s\t%s", c.Name,
		conditionStatus(c, v1alpha1.ConditionAccepted), conditionStatus(c, v1alpha1.ConditionReachable),
		assigned.Objects, assigned.Replicas, versions.Kubernetes, clusterNote(c))
}

// conditionStatus is a condition's status, Unknown when nobody has said it.
func conditionStatus(c *v1alpha1.Cluster, kind string) string {
	if found := meta.FindStatusCondition(c.Status.Conditions, kind); found != nil {
		return string(found.Status)
	}
	return string(metav1.ConditionUnknown)
}

// clusterNote says what somebody should know or do.
func clusterNote(c *v1alpha1.Cluster) string {
	var notes []string
	switch {
	case !c.Spec.Accepted:
		notes = append(notes, "kubectl patchbay cluster accept "+c.Name)
	case c.Spec.Drain != nil && c.Spec.Drain.Mode == v1alpha1.DrainMove:
		notes = append(notes, "is being drained")
	case c.Spec.Unschedulable:
		notes = append(notes, "takes nothing new")
	}
	if found := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionHubMismatch); found != nil && found.Status == metav1.ConditionTrue {
		notes = append(notes, v1alpha1.ConditionHubMismatch+": "+found.Message)
	}
	if found := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionAccepted); c.Spec.Accepted && found != nil && found.Status == metav1.ConditionFalse {
		notes = append(notes, found.Reason+": see kubectl describe cluster "+c.Name)
	}
	return strings.Join(notes, "; ")
}
