// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
)

// podListing is one call of `get pods`.
type podListing struct {
	output    string
	noHeaders bool
}

// outputWide is the value of --output with more columns.
const outputWide = "wide"

// newGet is the command `get`.
func newGet(f *factory) *cobra.Command {
	l := &podListing{}
	pods := &cobra.Command{
		Use:     "pods KIND/NAME",
		Aliases: []string{"pod", "po"},
		Short:   "List the Pods of a placed object in all its clusters",
		Long: "Prints one table with the Pods of an object in all clusters that have it. Clusters that cannot be read are named on\n" +
			"standard error, and the exit code is 1. A Pod that the hub does not know needs --in, such as pod/NAME --in=CLUSTER.\n" +
			"Hub and cluster must both allow it: see `kubectl patchbay context --help`.",
		Example:           "  kubectl patchbay get pods deployment/web -n shop -o wide",
		Args:              exactlyOneArgument("KIND/NAME of one object, such as deployment/web"),
		ValidArgsFunction: firstArgument(f.placedArguments),
		RunE: func(cmd *cobra.Command, args []string) error {
			if l.output != "" && l.output != outputWide {
				return fmt.Errorf("flag --output: must be %s or absent: got %q. For other formats see kubectl patchbay context --help", outputWide, l.output)
			}
			d, err := findDebugObject(f, cmd, args[0], cmd.Flag(inFlag).Value.String())
			if err != nil {
				return err
			}
			return l.run(cmd.Context(), f, d)
		},
	}
	addInFlag(pods, f)
	pods.Flag(inFlag).Usage = "the one Cluster to read; without it all that have the object"
	pods.Flags().StringVarP(&l.output, "output", "o", "", "wide for more columns")
	pods.Flags().BoolVar(&l.noHeaders, "no-headers", false, "do not print the headers of the table")
	registerFlagCompletion(pods, "output", cobra.FixedCompletions([]string{outputWide}, cobra.ShellCompDirectiveNoFileComp))
	return newGroup("get", "List what runs in clusters", "pods", pods)
}

// run reads all clusters at once, and prints the table of those that answered.
func (l *podListing) run(ctx context.Context, f *factory, d *debugObject) error {
	slices.Sort(d.clusters)
	tables, errs := make([]*metav1.Table, len(d.clusters)), make([]error, len(d.clusters))
	var all sync.WaitGroup
	for i, cluster := range d.clusters {
		all.Go(func() {
			r, err := newProxiedCluster(d.hub, d.ref.Namespace, cluster)
			if err == nil {
				tables[i], err = r.podTable(ctx, d)
			}
			errs[i] = err
		})
	}
	all.Wait()
	whole := &metav1.Table{}
	for _, table := range tables {
		if table != nil && len(table.ColumnDefinitions) > 0 {
			whole.ColumnDefinitions = table.ColumnDefinitions // Kubernetes' columns of Pods are the same in all versions
			whole.Rows = append(whole.Rows, table.Rows...)
		}
	}
	err := errors.Join(errs...)
	if len(whole.Rows) == 0 {
		if err == nil {
			fmt.Fprintf(f.ErrOut, "%s has no Pods\n", placedName(&d.ref))
		}
		return err
	}
	options := printers.PrintOptions{NoHeaders: l.noHeaders, Wide: l.output == outputWide}
	return errors.Join(printers.NewTablePrinter(options).PrintObj(whole, f.Out), err)
}

// podTable returns the rows that the cluster's API server prints for the object's Pods, after a column with the cluster.
func (r *proxiedCluster) podTable(ctx context.Context, d *debugObject) (*metav1.Table, error) {
	s, err := r.selection(ctx, &d.ref)
	if err != nil {
		return nil, err
	}
	table := &metav1.Table{}
	if s.controllers != nil && len(s.controllers) == 0 {
		return table, nil
	}
	if err := r.get(ctx, podResource(), s.pod, s.selector, acceptTable, table); err != nil {
		return nil, err
	}
	table.ColumnDefinitions = append([]metav1.TableColumnDefinition{{Name: "Cluster", Type: "string"}}, table.ColumnDefinitions...)
	rows := table.Rows
	table.Rows = nil
	for _, row := range rows {
		pod := &metav1.PartialObjectMetadata{}
		if err := json.Unmarshal(row.Object.Raw, pod); err != nil {
			return nil, fmt.Errorf("read the table of Pods of Cluster %s: %w", r.cluster, err)
		}
		if s.selects(pod) {
			row.Cells = append([]any{r.cluster}, row.Cells...)
			table.Rows = append(table.Rows, row)
		}
	}
	return table, nil
}
