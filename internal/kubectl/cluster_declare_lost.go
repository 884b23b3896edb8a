// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/explain"
)

// maxLossLines bounds how many objects the dry run of `cluster declare-lost` names.
const maxLossLines = 100

// declaration is one call of `cluster declare-lost`.
type declaration struct {
	cluster string
	yes     bool
	undo    bool
	command string // with --yes
	out     io.Writer
}

// newDeclareLost is the verb `cluster declare-lost`.
func newDeclareLost(f *factory) *cobra.Command {
	d := &declaration{out: f.Out}
	cmd := &cobra.Command{
		Use:   "declare-lost NAME",
		Short: "Declare that a silent cluster runs nothing any more, so that other clusters replace it",
		Long: "Sets spec.declaredLost of a Cluster that does not report. With it you give your word that what the hub has\n" +
			"placed there does not run any more, and does not start again by itself: its machines are off, or gone. Other\n" +
			"clusters then also start what must run in one cluster at a time, and Jobs and Pods run again from the start.\n" +
			"If the cluster still runs, these objects run twice. Objects with volume claims stay, because their data is in\n" +
			"the lost cluster. Without --yes the command lists the objects.\n" +
			"The declaration ends when the cluster reports again: it then loses what others have taken over. --undo takes\n" +
			"it back before that; what others have already taken over stays with them.",
		Example: "  kubectl patchbay cluster declare-lost east\n  kubectl patchbay cluster declare-lost east --yes",
		Args:    exactlyOneArgument(clusterArgument), ValidArgsFunction: firstArgument(f.clusterNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.cluster, d.command = args[0], commandWithYes(cmd, args)
			c, _, err := f.placementClient()
			if err != nil {
				return err
			}
			return d.run(cmd.Context(), c)
		},
	}
	cmd.Flags().BoolVar(&d.yes, "yes", false, "declare the cluster lost, instead of listing what that changes")
	cmd.Flags().BoolVar(&d.undo, "undo", false, "take the declaration back")
	cmd.MarkFlagsMutuallyExclusive("yes", "undo")
	return cmd
}

func (d *declaration) run(ctx context.Context, c client.Client) error {
	cluster := &v1alpha1.Cluster{}
	if err := c.Get(ctx, client.ObjectKey{Name: d.cluster}, cluster); err != nil {
		return fmt.Errorf("get Cluster %s: %w", d.cluster, err)
	}
	if d.undo {
		if err := patchClusterSpec(ctx, c, d.cluster, map[string]any{"declaredLost": nil}); err != nil {
			return err
		}
		_, err := fmt.Fprintf(d.out, "%s is not declared lost any more. What other clusters have taken over stays with them\n", d.cluster)
		return err
	}
	if err := checkSilent(cluster); err != nil {
		return err
	}
	if !d.yes {
		return d.list(ctx, c, cluster)
	}
	// The API server, too, rejects it if the cluster has reported meanwhile.
	if err := patchClusterSpec(ctx, c, d.cluster, map[string]any{"declaredLost": v1alpha1.DeclaredLost{LastHeartbeat: *cluster.Status.LastHeartbeat}}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(d.out, "%s is declared lost: other clusters replace it. Keep its machines off\n", d.cluster)
	return err
}

// checkSilent rejects a cluster that reports, or never has.
func checkSilent(c *v1alpha1.Cluster) error {
	reachable := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReachable)
	switch {
	case reachable == nil || reachable.Reason == v1alpha1.ReasonNeverJoined:
		return fmt.Errorf("cluster %s: must have reported before it can be lost: no agent has joined yet, and nothing runs there", c.Name)
	case reachable.Status == metav1.ConditionTrue:
		return fmt.Errorf("cluster %s: must not report when it is declared lost: its agent does. To move its objects away, run kubectl patchbay cluster drain %s", c.Name, c.Name)
	case c.Status.LastHeartbeat == nil:
		return fmt.Errorf("cluster %s: the hub has not said yet when it last reported (status.lastHeartbeat): check that patchbay-hub runs, and try again", c.Name)
	}
	return nil
}

// list prints what the declaration changes.
func (d *declaration) list(ctx context.Context, c client.Reader, cluster *v1alpha1.Cluster) error {
	var works v1alpha1.WorkList
	if err := c.List(ctx, &works, client.InNamespace(v1alpha1.ClusterNamespacePrefix+d.cluster)); err != nil {
		return fmt.Errorf("list Works of %s: %w", d.cluster, err)
	}
	var moves, again, stays []string
	var errs []error
	for i := range works.Items {
		w := &works.Items[i]
		e, err := explain.Loss(w)
		errs = append(errs, err)
		name := w.Spec.Source.Kind + " " + strings.TrimPrefix(w.Spec.Source.Namespace+"/"+w.Spec.Source.Name, "/")
		switch {
		case w.Spec.Removal != nil && (e.Stays != "" || e.RunsAgain): // it leaves the cluster, and runs nowhere again
		case w.Spec.Removal != nil:
			moves = append(moves, name+", whose removal is ordered, and is no longer awaited")
		case e.Stays != "":
			stays = append(stays, name+": "+e.Stays)
		case e.RunsAgain:
			again = append(again, name)
		case e.RunsInOne:
			moves = append(moves, name+", which must run in one cluster at a time")
		default:
			moves = append(moves, name)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	lines := []string{fmt.Sprintf("%s last reported at %s.", d.cluster, cluster.Status.LastHeartbeat.UTC().Format(metav1.RFC3339Micro))}
	for _, part := range []struct {
		title string
		names []string
	}{
		{"Started in other clusters, if their policies allow one that has room, unless they run there already:", moves},
		{"Run again, from the start, in another cluster:", again},
		{"Not started elsewhere:", stays},
	} {
		if len(part.names) == 0 {
			continue
		}
		slices.Sort(part.names)
		lines = append(lines, part.title)
		for _, name := range part.names[:min(len(part.names), maxLossLines)] {
			lines = append(lines, "  "+name)
		}
		if more := len(part.names) - maxLossLines; more > 0 {
			lines = append(lines, fmt.Sprintf("  and %d more", more))
		}
	}
	lines = append(lines, "Nothing has changed. If nothing of this runs in "+d.cluster+" any more, and its machines are off or gone, run:", "  "+d.command)
	_, err := fmt.Fprintln(d.out, strings.Join(lines, "\n"))
	return err
}
