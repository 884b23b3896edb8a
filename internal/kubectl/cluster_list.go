// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// clusterListing is one call of `cluster list`.
type clusterListing struct {
	print     *genericclioptions.PrintFlags
	noHeaders bool
}

// newClusterList is the verb `cluster list`.
func newClusterList(f *factory) *cobra.Command {
	l := &clusterListing{print: genericclioptions.NewPrintFlags("")}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the clusters of this hub and the actions that they need",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			printer, err := l.printer()
			if err != nil {
				return err
			}
			c, _, err := f.placementClient()
			if err != nil {
				return err
			}
			return l.run(cmd.Context(), c, printer, f.Out, f.ErrOut)
		},
	}
	l.addFlags(cmd)
	return cmd
}

func (l *clusterListing) addFlags(cmd *cobra.Command) {
	l.print.AddFlags(cmd)
	cmd.Flags().BoolVar(&l.noHeaders, "no-headers", false, "do not print the headers of the table")
	registerFlagCompletion(cmd, "output", cobra.FixedCompletions(l.print.AllowedFormats(), cobra.ShellCompDirectiveNoFileComp))
}

// printer returns the printer of the format that -o or --template names, and nil for a table.
func (l *clusterListing) printer() (printers.ResourcePrinter, error) {
	if !l.print.OutputFlagSpecified() && *l.print.TemplatePrinterFlags.TemplateArgument == "" {
		return nil, nil
	}
	printer, err := l.print.ToPrinter()
	if err != nil {
		return nil, fmt.Errorf("flag --output: %w", err)
	}
	return printer, nil
}

// run reads the Clusters and prints them with the printer, or as a table without one.
func (l *clusterListing) run(ctx context.Context, c client.Reader, printer printers.ResourcePrinter, out, errOut io.Writer) error {
	list := &v1alpha1.ClusterList{}
	if err := c.List(ctx, list); err != nil {
		return fmt.Errorf("list Clusters: %w", err)
	}
	switch {
	case printer != nil:
		setClusterKinds(list)
		return l.printObjects(list, printer, out)
	case len(list.Items) == 0:
		_, err := fmt.Fprintln(errOut, "No cluster has joined: see kubectl patchbay hub token --help")
		return err
	}
	return printers.NewTablePrinter(printers.PrintOptions{NoHeaders: l.noHeaders}).PrintObj(clusterTable(list.Items), out)
}

// printObjects prints the list. The printer of names takes single objects only.
func (l *clusterListing) printObjects(list *v1alpha1.ClusterList, printer printers.ResourcePrinter, out io.Writer) error {
	if *l.print.OutputFormat != "name" {
		return printer.PrintObj(list, out)
	}
	for i := range list.Items {
		if err := printer.PrintObj(&list.Items[i], out); err != nil {
			return err
		}
	}
	return nil
}

// setClusterKinds sets apiVersion and kind, which printers need, on a list and its items.
func setClusterKinds(list *v1alpha1.ClusterList) {
	list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion().WithKind("ClusterList"))
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(v1alpha1.SchemeGroupVersion().WithKind("Cluster"))
	}
}

// clusterTable returns one row per cluster; the last column has what the user should know or do.
func clusterTable(clusters []v1alpha1.Cluster) *metav1.Table {
	table := &metav1.Table{}
	for _, name := range []string{"Name", "Accepted", "Reachable", "Objects", "Replicas", "Version", "Note"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for i := range clusters {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: clusterCells(&clusters[i])})
	}
	return table
}

func clusterCells(c *v1alpha1.Cluster) []any {
	assigned, versions := v1alpha1.Assigned{}, v1alpha1.Versions{}
	if c.Status.Assigned != nil {
		assigned = *c.Status.Assigned
	}
	if c.Status.Versions != nil {
		versions = *c.Status.Versions
	}
	return []any{
		c.Name, conditionStatus(c, v1alpha1.ConditionAccepted), conditionStatus(c, v1alpha1.ConditionReachable),
		assigned.Objects, assigned.Replicas, versions.Kubernetes, clusterNote(c),
	}
}

// conditionStatus returns the status of a condition, Unknown if the Cluster does not have it.
func conditionStatus(c *v1alpha1.Cluster, kind string) string {
	if found := meta.FindStatusCondition(c.Status.Conditions, kind); found != nil {
		return string(found.Status)
	}
	return string(metav1.ConditionUnknown)
}

func clusterNote(c *v1alpha1.Cluster) string {
	var notes []string
	switch {
	case !c.Spec.Accepted:
		notes = append(notes, "kubectl patchbay cluster accept "+c.Name)
	case c.Spec.Drain != nil && c.Spec.Drain.Mode == v1alpha1.DrainMove:
		notes = append(notes, "is being drained")
	case c.Spec.Unschedulable:
		notes = append(notes, "gets no new objects")
	}
	if found := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionHubMismatch); found != nil && found.Status == metav1.ConditionTrue {
		notes = append(notes, v1alpha1.ConditionHubMismatch+": "+found.Message)
	}
	if found := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionAccepted); c.Spec.Accepted && found != nil && found.Status == metav1.ConditionFalse {
		notes = append(notes, found.Reason+": see kubectl describe cluster "+c.Name)
	}
	return strings.Join(notes, "; ")
}
