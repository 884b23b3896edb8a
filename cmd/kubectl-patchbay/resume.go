// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// newResume is the verb that lets clusters go on whose hub was restored, or made again.
func newResume(ctx context.Context, a *access) *cobra.Command {
	r := &resumption{}
	cmd := &cobra.Command{
		Use:   "resume --take=hub|cluster",
		Short: "Let clusters go on after the hub was restored from a backup, or made again",
		Long: "After a hub was restored from a backup, or made again, agents halt the Works that do not continue what\n" +
			"they have seen: objects stay as they are, and nothing is removed. This lists them, with what differs, and\n" +
			"with --yes answers them:\n" +
			"  --take=hub      the cluster takes over what the hub says, removals included\n" +
			"  --take=cluster  the cluster keeps what it has, until the object is next changed at the hub\n" +
			"Agents get the answer through the hub; one that is not reachable gets it when it is back. It is safe to\n" +
			"repeat.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if r.take != v1alpha1.TakeHub && r.take != v1alpha1.TakeCluster {
				return fmt.Errorf("--take must be %s or %s, not %q", v1alpha1.TakeHub, v1alpha1.TakeCluster, r.take)
			}
			c, err := a.openUnlimited()
			if err != nil {
				return err
			}
			return r.run(ctx, c, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.take, "take", "", "whose state counts: hub or cluster")
	flags.StringVar(&r.in, "in", "", "answer in this cluster only")
	flags.BoolVar(&r.yes, "yes", false, "answer; without it only what would happen is listed")
	return cmd
}

// resumption is one call of resume.
type resumption struct {
	take, in string
	yes      bool
}

// answersAtOnce is how many Works are answered at a time.
const answersAtOnce = 8

// run lists what is halted, and answers it if that is wanted.
func (r *resumption) run(ctx context.Context, c client.Client, out io.Writer) error {
	silent, err := r.unreachable(ctx, c)
	if err != nil {
		return err
	}
	halted, err := r.halted(ctx, c)
	if err != nil {
		return err
	}
	waiting := r.print(out, halted, silent)
	asked := len(halted) - waiting
	if asked == 0 {
		_, err := fmt.Fprintln(out, "no Work is halted: there is nothing to answer")
		return err
	}
	if !r.yes {
		again := "kubectl patchbay hub resume --take=" + r.take
		if r.in != "" {
			again += " --in=" + r.in
		}
		_, err := fmt.Fprintf(out, "%d Works are halted, and %d wait for them. Nothing was changed. To answer them: %s --yes\n", asked, waiting, again)
		return err
	}
	answered, err := r.answer(ctx, c, halted)
	if _, printErr := fmt.Fprintf(out, "%d of %d Works are answered\n", answered, asked); err == nil {
		err = printErr
	}
	return err
}

// unreachable are the clusters that do not report now. A cluster that is asked for must exist.
func (r *resumption) unreachable(ctx context.Context, c client.Client) (map[string]bool, error) {
	var list v1alpha1.ClusterList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list Clusters: %w", err)
	}
	if r.in != "" && !slices.ContainsFunc(list.Items, func(c v1alpha1.Cluster) bool { return c.Name == r.in }) {
		return nil, fmt.Errorf("--in: there is no Cluster %q: see kubectl patchbay cluster list", r.in)
	}
	silent := map[string]bool{}
	for i := range list.Items {
		silent[list.Items[i].Name] = !meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, v1alpha1.ConditionReachable)
	}
	return silent, nil
}

// halted returns the Works that agents have halted, in the order of clusters and objects.
func (r *resumption) halted(ctx context.Context, c client.Client) ([]v1alpha1.Work, error) {
	var found []v1alpha1.Work
	options := &client.ListOptions{Limit: 500}
	if r.in != "" {
		options.Namespace = v1alpha1.ClusterNamespacePrefix + r.in
	}
	for {
		var list v1alpha1.WorkList
		if err := c.List(ctx, &list, options); err != nil {
			return nil, fmt.Errorf("list Works: %w", err)
		}
		for i := range list.Items {
			if list.Items[i].Status.Halted != nil {
				found = append(found, list.Items[i])
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	slices.SortFunc(found, func(a, b v1alpha1.Work) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(objectOf(&a), objectOf(&b)))
	})
	return found, nil
}

// objectOf names the object of a Work.
func objectOf(w *v1alpha1.Work) string {
	s := w.Spec.Source
	return s.Kind + " " + strings.TrimPrefix(s.Namespace+"/"+s.Name, "/")
}

// print lists what the answer does to each object, and tells how many Works wait for others.
func (r *resumption) print(out io.Writer, halted []v1alpha1.Work, silent map[string]bool) (waiting int) {
	named := ""
	for i := range halted {
		w := &halted[i]
		cluster := strings.TrimPrefix(w.Namespace, v1alpha1.ClusterNamespacePrefix)
		if cluster != named {
			note := ""
			if silent[cluster] {
				note = " (not reachable: the answer gets there when it is back)"
			}
			fmt.Fprintf(out, "%s%s\n", cluster, note)
			named = cluster
		}
		fmt.Fprintf(out, "  %s: %s\n", objectOf(w), r.effect(w, cluster))
		if w.Status.Halted.Record == "" {
			waiting++
			continue
		}
		for _, d := range w.Status.Halted.Differences {
			fmt.Fprintf(out, "    %s\n", d)
		}
	}
	return waiting
}

// effect says what an answer does to a Work.
func (r *resumption) effect(w *v1alpha1.Work, cluster string) string {
	switch {
	case w.Status.Halted.Record == "" && w.Spec.Removal != nil:
		return "is removed from " + cluster + " when the others are answered"
	case w.Status.Halted.Record == "":
		return "is created in " + cluster + " when the others are answered"
	case r.take == v1alpha1.TakeCluster:
		return "stays as it is in " + cluster
	case w.Spec.Removal != nil:
		return "is removed from " + cluster
	case len(w.Status.Halted.Differences) == 0:
		return "is the same in " + cluster
	}
	return "becomes in " + cluster + " what the hub says"
}

// answer writes the answer on each Work, and goes on when one cannot be written.
func (r *resumption) answer(ctx context.Context, c client.Client, halted []v1alpha1.Work) (answered int32, err error) {
	var done atomic.Int32
	failed := make([]error, len(halted))
	var g errgroup.Group
	g.SetLimit(answersAtOnce)
	for i := range halted {
		w := &halted[i]
		if w.Status.Halted.Record == "" {
			continue
		}
		g.Go(func() error {
			if failed[i] = r.answerOne(ctx, c, w); failed[i] == nil {
				done.Add(1)
			}
			return nil
		})
	}
	_ = g.Wait() // each has its error in failed
	return done.Load(), errors.Join(failed...)
}

func (r *resumption) answerOne(ctx context.Context, c client.Client, w *v1alpha1.Work) error {
	if ctx.Err() != nil {
		return fmt.Errorf("answer Work %s/%s: %w", w.Namespace, w.Name, ctx.Err())
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": w.UID, "annotations": map[string]string{v1alpha1.ResumeAnnotation: r.take + ":" + w.Status.Halted.Record},
	}})
	if err != nil {
		return fmt.Errorf("encode the answer to Work %s/%s: %w", w.Namespace, w.Name, err)
	}
	err = c.Patch(ctx, w.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("answer Work %s/%s (it is safe to repeat): %w", w.Namespace, w.Name, err)
	}
	return nil
}
