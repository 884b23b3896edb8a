// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/explain"
)

// newExplain is the verb `explain`.
func newExplain(f *factory) *cobra.Command {
	return &cobra.Command{
		Use:   "explain KIND/NAME",
		Short: "Explain for each cluster why an object is placed there, or is not",
		Long: "Prints the policy that places an object of the hub, and for each cluster whether it may have the object, with\n" +
			"the reason, and what the hub reports of it. Whether a cluster has room is in the line Placed. You need the\n" +
			"right to list Clusters.",
		Example:           "  kubectl patchbay explain deployment/web -n shop",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: firstArgument(f.placedArguments),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.hubObject(cmd, args)
			if err != nil {
				return err
			}
			return explainObject(cmd.Context(), o.client, o.mapping, o.namespace, o.name, f.Out)
		},
	}
}

// explainObject reads what the explanation needs, and prints it.
func explainObject(ctx context.Context, c client.Client, mapping *meta.RESTMapping, namespace, name string, out io.Writer) error {
	r := &removal{}
	if err := r.readObject(ctx, c, mapping, namespace, name); err != nil {
		return err
	}
	in := explain.Input{Object: r.object, Namespaced: r.object.Namespace != "", Now: time.Now()}
	a := &v1alpha1.Assignment{}
	switch err := c.Get(ctx, r.assignment, a); {
	case err == nil:
		in.Assignment = a
	case meta.IsNoMatchError(err):
		return fmt.Errorf("read Assignment %s: this API server must be a hub: %w", r.assignment, err)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read Assignment %s: %w", r.assignment, err)
	}
	if err := readPolicies(ctx, c, &in); err != nil {
		return err
	}
	x, err := explain.Explain(in)
	if err != nil {
		return fmt.Errorf("explain %s: %w", r.name(), err)
	}
	dependents, err := dependentsOf(ctx, c, r)
	if err != nil {
		return err
	}
	return printExplanation(out, r.name(), x, in.Assignment, dependents)
}

// readPolicies reads the policies and the Clusters.
func readPolicies(ctx context.Context, c client.Client, in *explain.Input) error {
	var clusters v1alpha1.ClusterList
	if err := c.List(ctx, &clusters); err != nil {
		return fmt.Errorf("list Clusters: %w", err)
	}
	var global v1alpha1.ClusterPlacementList
	if err := c.List(ctx, &global); err != nil {
		return fmt.Errorf("list ClusterPlacements: %w", err)
	}
	in.Clusters, in.ClusterPlacements = clusters.Items, global.Items
	if !in.Namespaced {
		return nil
	}
	ns := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: in.Object.Namespace}, ns); err != nil {
		return fmt.Errorf("read Namespace %s: %w", in.Object.Namespace, err)
	}
	var local v1alpha1.PlacementList
	if err := c.List(ctx, &local, client.InNamespace(in.Object.Namespace)); err != nil {
		return fmt.Errorf("list Placements in namespace %s: %w", in.Object.Namespace, err)
	}
	in.NamespaceLabels, in.Placements = ns.Labels, local.Items
	return nil
}

// dependentsOf names the objects that need the object, each with its clusters.
func dependentsOf(ctx context.Context, c client.Client, r *removal) ([]string, error) {
	if err := r.findDependents(ctx, c); err != nil {
		return nil, err
	}
	var found []string
	for cluster, dependent := range r.dependents {
		found = append(found, fmt.Sprintf("%s (in %s)", dependent, cluster))
	}
	slices.Sort(found)
	return found, nil
}

// printExplanation prints policy, conditions and one row per cluster.
func printExplanation(w io.Writer, name string, x *explain.Explanation, a *v1alpha1.Assignment, dependents []string) error {
	if a == nil {
		a = &v1alpha1.Assignment{}
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, name)
	fmt.Fprintf(out, "Policy: %s\n", describePolicy(x, a))
	if x.Mistake != "" {
		fmt.Fprintf(out, "Mistake: %s\n", x.Mistake)
	}
	if len(dependents) > 0 {
		fmt.Fprintf(out, "Needed by: %s\n", joinFirst(dependents, maxSkippedNames))
	}
	for _, c := range a.Status.Conditions {
		if c.Type == v1alpha1.ConditionPlaced || c.Type == v1alpha1.ConditionMoveBlocked && c.Status == metav1.ConditionTrue {
			fmt.Fprintf(out, "%s: %s, %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	printFitness(out, x, a)
	return out.Flush()
}

// printFitness prints a row for each cluster that the policy may use, or that has the object.
func printFitness(out io.Writer, x *explain.Explanation, a *v1alpha1.Assignment) {
	rows := map[string][]string{} // state, replicas, fit, reasons
	for _, f := range x.Clusters {
		fit := "no"
		switch {
		case f.Takes:
			fit = "yes"
		case f.Keeps:
			fit = "keeps"
		}
		reasons := f.Reasons
		if text := x.Room[f.Cluster]; text != "" && f.Selected {
			reasons = append(slices.Clone(reasons), text)
		}
		rows[f.Cluster] = []string{"-", "-", fit, strings.Join(reasons, "; ")}
	}
	for _, t := range a.Spec.Targets {
		row, ok := rows[string(t.Cluster)]
		if !ok {
			row = []string{"-", "-", "-", ""}
			rows[string(t.Cluster)] = row
		}
		if row[0] = string(t.State); t.Replicas != nil {
			row[1] = fmt.Sprint(*t.Replicas)
		}
	}
	for i := range a.Status.Clusters {
		report := &a.Status.Clusters[i]
		if row, ok := rows[string(report.Cluster)]; ok && report.Message != "" {
			row[3] = strings.TrimPrefix(row[3]+"; "+report.Message, "; ")
		}
	}
	if len(rows) > 0 {
		fmt.Fprintln(out, "\nCLUSTER\tSTATE\tREPLICAS\tFIT\tREASON")
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintln(out, name+"\t"+strings.Join(rows[name], "\t"))
	}
}

// sourceDependents is the source of a decision that follows from the objects that need this one.
const sourceDependents = "dependency"

// describePolicy returns where the decision comes from.
func describePolicy(x *explain.Explanation, a *v1alpha1.Assignment) string {
	placed := len(a.Spec.Targets) > 0
	switch {
	case x.Policy == "" && placed && a.Spec.Decision.Source == sourceDependents:
		return "none selects it; it is placed with the objects that need it"
	case x.Policy == "" && placed:
		return "none selects it; it stays where it is"
	case x.Policy == "":
		return "none selects it; it stays at the hub"
	case x.Instead != "":
		return fmt.Sprintf("the %s, before %s, whose other fields are in force (replicas: %s)", x.Policy, x.Instead, x.Mode)
	case x.Policy == v1alpha1.SourceAnnotation:
		return fmt.Sprintf("the %s (replicas: %s)", x.Policy, x.Mode)
	}
	return fmt.Sprintf("%s (replicas: %s)", x.Policy, x.Mode)
}
