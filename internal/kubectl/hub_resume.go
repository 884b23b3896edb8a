// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// newResume is the verb `hub resume`.
func newResume(f *factory) *cobra.Command {
	r := &resumption{}
	cmd := &cobra.Command{
		Use:   "resume --take=cluster|hub",
		Short: "Resume clusters after the hub was restored from a backup, or created again",
		Long: "After a hub is restored from a backup, or created again, agents halt the Works that do not continue the\n" +
			"state in their records: objects stay as they are, and nothing is removed. Without --yes the command lists\n" +
			"these Works, the differences, and the effect of the answer. With --yes it writes the answer on them:\n" +
			"  --take=cluster  the cluster keeps its objects until they are next changed at the hub\n" +
			"  --take=hub      the cluster takes over the state of the hub, removals included\n" +
			"With --take=hub, --yes needs the --confirm at the end of the list, so that the answer is for the listed Works\n" +
			"and no others. Agents read the answer from the hub; an unreachable agent reads it when it is back. A Work\n" +
			"that the hub has changed by then stays halted and is listed again. An unreachable agent may halt more\n" +
			"Works: the command names these clusters; run it again when they are back. You can interrupt it at any time.",
		Example: "  kubectl patchbay hub resume --take=cluster\n  kubectl patchbay hub resume --take=hub --for-cluster=east\n" +
			"  kubectl patchbay hub resume --take=hub --for-cluster=east --yes --confirm=3f9c2a71",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.take != v1alpha1.TakeHub && r.take != v1alpha1.TakeCluster {
				return fmt.Errorf("flag --take: must be %s or %s: got %q; see --help", v1alpha1.TakeCluster, v1alpha1.TakeHub, r.take)
			}
			switch removes := r.yes && r.take == v1alpha1.TakeHub; {
			case removes && r.confirmedDigest == "":
				return errors.New("flag --confirm: must be there with --take=hub --yes: run the command without --yes, which lists the effects and prints the value of --confirm")
			case !removes && r.confirmedDigest != "":
				return errors.New("flag --confirm: must be there with --take=hub --yes only")
			}
			r.command = commandWithYes(cmd, args, "take", "for-cluster")
			c, err := f.unthrottledPlacementClient()
			if err != nil {
				return err
			}
			return r.run(cmd.Context(), c, f.Out)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.take, "take", "", "the state that counts, cluster or hub; required")
	flags.StringVar(&r.cluster, "for-cluster", "", "only the Works of this cluster")
	flags.StringVar(&r.confirmedDigest, "confirm", "", "the digest of the listed Works, which the command without --yes prints; required with --take=hub --yes")
	flags.BoolVar(&r.yes, "yes", false, "write the answer; without this flag the command lists the effects")
	registerFlagCompletion(cmd, "take", cobra.FixedCompletions([]string{v1alpha1.TakeCluster, v1alpha1.TakeHub}, cobra.ShellCompDirectiveNoFileComp))
	registerFlagCompletion(cmd, "for-cluster", flagValue(f.clusterNames))
	return cmd
}

// resumption is one call of `hub resume`.
type resumption struct {
	take, cluster, confirmedDigest string
	yes                            bool
	command                        string // with --yes
}

// run lists the halted Works, and answers them with --yes.
func (r *resumption) run(ctx context.Context, c client.Client, out io.Writer) error {
	reachable, err := reachableClusters(ctx, c)
	if err != nil {
		return err
	}
	if _, ok := reachable[r.cluster]; r.cluster != "" && !ok {
		return fmt.Errorf("flag --for-cluster: must be a Cluster of this hub: there is no Cluster %q: see kubectl patchbay cluster list", r.cluster)
	}
	found, err := r.list(ctx, c)
	if err != nil {
		return err
	}
	if r.confirmedDigest != "" && len(found.halted) > 0 && r.confirmedDigest != r.digest(found.halted) {
		return fmt.Errorf("flag --confirm: must be the digest of the Works that are halted now: the Works that are halted have changed since %s was printed: run the command without --yes again", r.confirmedDigest)
	}
	asked, away, err := r.print(out, found, reachable)
	if err != nil || !r.yes || len(asked) == 0 {
		return err
	}
	return r.answer(ctx, c, asked, away, out)
}

// pageSize is how many Works are read at a time: a Work may have 256 KiB.
const pageSize = 500

// workListing is the state of the Works at the hub.
type workListing struct {
	// halted Works, without their manifests, in the order of clusters and objects.
	halted []v1alpha1.Work
	// notHalted counts the Works that are not halted, by cluster.
	notHalted map[string]int
}

// list reads all Works.
func (r *resumption) list(ctx context.Context, c client.Client) (workListing, error) {
	found := workListing{notHalted: map[string]int{}}
	options := &client.ListOptions{Limit: pageSize}
	if r.cluster != "" {
		options.Namespace = v1alpha1.ClusterNamespacePrefix + r.cluster
	}
	for {
		var list v1alpha1.WorkList
		if err := c.List(ctx, &list, options); err != nil {
			return found, fmt.Errorf("list Works: %w", err)
		}
		for i := range list.Items {
			w := &list.Items[i]
			if w.Status.Halted == nil {
				found.notHalted[clusterOf(w)]++
				continue
			}
			found.halted = append(found.halted, v1alpha1.Work{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, UID: w.UID},
				Spec: v1alpha1.WorkSpec{
					HubUID: w.Spec.HubUID, Epoch: w.Spec.Epoch, Term: w.Spec.Term, Revision: w.Spec.Revision,
					Source: w.Spec.Source, Removal: w.Spec.Removal,
				},
				Status: v1alpha1.WorkStatus{Halted: w.Status.Halted},
			})
		}
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	slices.SortFunc(found.halted, func(a, b v1alpha1.Work) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(sourceOf(&a), sourceOf(&b)))
	})
	return found, nil
}

// clusterOf returns the cluster of a Work.
func clusterOf(w *v1alpha1.Work) string {
	return strings.TrimPrefix(w.Namespace, v1alpha1.ClusterNamespacePrefix)
}

// sourceOf returns the name of a Work's object for messages.
func sourceOf(w *v1alpha1.Work) string {
	return objectName(w.Spec.Source.Kind, w.Spec.Source.Namespace, w.Spec.Source.Name)
}

// digest identifies the Works, their states and the effects of the answer on them. It leaves out
// Works that the answer only creates: they change no object in a cluster, and on a busy hub their
// digest would be outdated before the user can type it.
func (r *resumption) digest(halted []v1alpha1.Work) string {
	var lines []string
	for i := range halted {
		w := &halted[i]
		if did := r.outcome(w); did != outcomeCreated {
			lines = append(lines, fmt.Sprintln(w.UID, w.Status.Halted.Record, w.Spec.Position(), int(did)))
		}
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return hex.EncodeToString(sum[:4]) // short enough to type, and long enough against collisions
}

// maxReportedDifferences is the number of differences that an agent reports. There may be more.
const maxReportedDifferences = 20

// print lists the effect of the answer on each object. It returns the Works to answer, and the
// number of clusters with Works that do not report.
func (r *resumption) print(w io.Writer, found workListing, reachable map[string]bool) (asked []v1alpha1.Work, away int, err error) {
	out := bufio.NewWriter(w)
	counts := map[outcome]int{}
	answers := map[string]int{} // by cluster
	for i := range found.halted {
		work := &found.halted[i]
		cluster := clusterOf(work)
		did := r.outcome(work)
		counts[did]++
		fmt.Fprintf(out, "%s  %s: %s\n", cluster, sourceOf(work), did.in(cluster))
		if did == outcomeCreated || did == outcomeRemovedLater {
			continue
		}
		asked = append(asked, *work)
		answers[cluster]++
		printDifferences(out, work)
	}
	away = printNotReporting(out, found.notHalted, answers, reachable)
	waiting := len(found.halted) - len(asked)
	switch {
	case len(found.halted) == 0:
		fmt.Fprint(out, "no Work is halted: there is nothing to answer")
	case len(asked) == 0:
		fmt.Fprintf(out, "no Work is halted with a record: there is nothing to answer. Works that go on when agents report again: %d", waiting)
	default:
		fmt.Fprintf(out, "Works that are halted: %d (%s). Works that wait for them: %d", len(asked), formatOutcomes(counts), waiting)
	}
	if away > 0 {
		fmt.Fprintf(out, ". Clusters that do not report: %d", away)
	}
	fmt.Fprintln(out)
	if len(asked) > 0 && !r.yes {
		command := r.command
		if r.take == v1alpha1.TakeHub {
			command += " --confirm=" + r.digest(found.halted)
		}
		fmt.Fprintf(out, "Nothing was changed. To answer them: %s\n", command)
	}
	return asked, away, out.Flush()
}

// printDifferences lists the differences between a Work and its cluster's record.
func printDifferences(out io.Writer, work *v1alpha1.Work) {
	h := work.Status.Halted
	for _, d := range h.Differences {
		fmt.Fprintf(out, "      %s\n", strings.TrimPrefix(d, sourceOf(work)+": "))
	}
	if len(h.Differences) >= maxReportedDifferences {
		fmt.Fprintf(out, "      (the agent reports the first %d differences)\n", maxReportedDifferences)
	}
	if !reportIsCurrent(work) {
		fmt.Fprintln(out, "      (the hub has changed it since the agent reported that)")
	}
}

// reportIsCurrent reports whether the agent's report is about the present state of the Work.
func reportIsCurrent(w *v1alpha1.Work) bool { return w.Status.Halted.Work == w.Spec.Position() }

// printNotReporting names the clusters that have Works and do not report, and returns their number.
// Their agents may halt more Works when they are back.
func printNotReporting(out io.Writer, others, answers map[string]int, reachable map[string]bool) int {
	clusters := slices.Concat(slices.Collect(maps.Keys(others)), slices.Collect(maps.Keys(answers)))
	slices.Sort(clusters)
	clusters = slices.DeleteFunc(slices.Compact(clusters), func(name string) bool { return reachable[name] })
	for _, cluster := range clusters {
		if answers[cluster] > 0 {
			fmt.Fprintf(out, "%s does not report: the answer reaches it when it is back\n", cluster)
		}
		if n := others[cluster]; n > 0 {
			fmt.Fprintf(out, "%s does not report: it has Works that may be halted when it is back (%d): run the command again then\n", cluster, n)
		}
	}
	return len(clusters)
}

// outcome is the effect of an answer on an object in its cluster.
type outcome int

const (
	outcomeChanged outcome = iota
	outcomeRemoved
	outcomeOrphaned
	outcomeSame
	outcomeKept
	outcomeCreated
	outcomeRemovedLater
)

// in returns the outcome in a cluster, for messages.
func (o outcome) in(cluster string) string {
	return fmt.Sprintf([...]string{
		outcomeChanged:      "becomes in %s what the hub says",
		outcomeRemoved:      "is removed from %s",
		outcomeOrphaned:     "is orphaned in %s: it stays there, and Patchbay does not manage it any more",
		outcomeSame:         "is the same in %s",
		outcomeKept:         "stays as it is in %s",
		outcomeCreated:      "is created in %s when the others are answered",
		outcomeRemovedLater: "is removed from %s when the others are answered",
	}[o], cluster)
}

// outcome returns the effect of the answer on the object of a Work.
func (r *resumption) outcome(w *v1alpha1.Work) outcome {
	removal := w.Spec.Removal
	switch h := w.Status.Halted; {
	case h.Record == "" && removal != nil:
		return outcomeRemovedLater
	case h.Record == "":
		return outcomeCreated
	case r.take == v1alpha1.TakeCluster:
		return outcomeKept
	case removal != nil && removal.Policy == v1alpha1.OnDeleteOrphan:
		return outcomeOrphaned
	case removal != nil:
		return outcomeRemoved
	case len(h.Differences) == 0 && reportIsCurrent(w):
		return outcomeSame
	}
	return outcomeChanged
}

// formatOutcomes returns the number of objects per outcome, such as "changed: 1, removed: 2".
func formatOutcomes(counts map[outcome]int) string {
	var parts []string
	for did, name := range [...]string{
		outcomeChanged: "changed", outcomeRemoved: "removed", outcomeOrphaned: "orphaned", outcomeSame: "the same", outcomeKept: "kept as they are",
	} {
		if n := counts[outcome(did)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", name, n))
		}
	}
	return strings.Join(parts, ", ")
}

// maxConcurrentAnswers is the number of Works that are answered at the same time.
const maxConcurrentAnswers = 8

// answer writes the answer on each Work. It continues after a failed write, and stops when ctx ends.
func (r *resumption) answer(ctx context.Context, c client.Client, asked []v1alpha1.Work, away int, out io.Writer) error {
	var written, gone atomic.Int32
	failed := make([]error, len(asked))
	var g errgroup.Group
	g.SetLimit(maxConcurrentAnswers)
	for i := range asked {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			switch err := r.answerOne(ctx, c, &asked[i]); {
			case err == nil:
				written.Add(1)
			case errors.Is(err, errWorkDeleted):
				gone.Add(1)
			default:
				failed[i] = fmt.Errorf("%s  %s: %w", clusterOf(&asked[i]), sourceOf(&asked[i]), err)
			}
			return nil
		})
	}
	_ = g.Wait() // each has its error in failed
	report := fmt.Sprintf("%d of %d Works are answered", written.Load(), len(asked))
	if n := gone.Load(); n > 0 {
		report += fmt.Sprintf("; deleted meanwhile: %d", n)
	}
	if away > 0 {
		report += fmt.Sprintf("; clusters that do not report: %d", away)
	}
	_, err := fmt.Fprintln(out, report)
	errs := append([]error{err}, failed...)
	if ctx.Err() != nil {
		errs = append(errs, errors.New("interrupted before the others were answered"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("not all Works are answered: run the command without --yes again to list the others:\n%w", err)
	}
	return nil
}

// errWorkDeleted means that a Work was deleted after it was listed.
var errWorkDeleted = errors.New("the Work is deleted")

// answerTimeout bounds the write of one answer. An interrupt does not cancel the write, so that
// written answers are counted.
const answerTimeout = 15 * time.Second

// answerOne writes the answer on one Work. Concurrent writes of the agent and the hub do not matter:
// the answer names the states of the record and the Work that it is for.
func (r *resumption) answerOne(ctx context.Context, c client.Client, w *v1alpha1.Work) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": w.UID, "annotations": map[string]string{v1alpha1.ResumeAnnotation: v1alpha1.ResumeAnswer(r.take, w.Status.Halted.Record, w.Spec.Position())},
	}})
	if err != nil {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
		o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion().WithKind("Work"))
		err := c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldOwner))
		if apierrors.IsConflict(err) || apierrors.IsInvalid(err) { // another Work may have this name now
			readErr := c.Get(ctx, client.ObjectKeyFromObject(w), o)
			if apierrors.IsNotFound(readErr) || readErr == nil && o.UID != w.UID {
				return errWorkDeleted
			}
		}
		if apierrors.IsNotFound(err) {
			return errWorkDeleted
		}
		return err
	})
}
