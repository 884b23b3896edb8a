// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// drainPoll is how often the progress of a drain is read.
const drainPoll = time.Second

// maxConcurrentMoves is the largest spec.drain.maxConcurrentMoves that the schema allows.
const maxConcurrentMoves = 1000

// drainCommand is one call of `cluster drain`.
type drainCommand struct {
	cluster    string
	maxMoves   int32         // 0: not given
	deadline   time.Duration // 0: not given
	onDeadline string        // empty: not given
	wait       bool
	timeout    time.Duration // 0: none
	poll       time.Duration
	out        io.Writer
}

// newDrain is the verb `cluster drain`.
func newDrain(f *factory) *cobra.Command {
	d := &drainCommand{poll: drainPoll, out: f.Out}
	cmd := &cobra.Command{
		Use:   "drain NAME",
		Short: "Move all objects of a cluster to other clusters",
		Long: "Sets spec.drain of the Cluster at the hub, and waits until the hub has moved all objects to other clusters.\n" +
			"It prints the progress, and the objects that cannot leave. Objects with a greater priority leave first (the\n" +
			"annotation " + v1alpha1.DrainPriorityAnnotation + ", else the priority of their Pods), then the smaller ones.\n" +
			"The drain goes on when this command ends: kubectl patchbay cluster uncordon NAME --end-drain ends it.",
		Example: "  kubectl patchbay cluster drain east --max-moves=5 --deadline=30m --timeout=1h",
		Args:    exactlyOneArgument(clusterArgument), ValidArgsFunction: firstArgument(f.clusterNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.cluster = args[0]
			if err := d.validate(cmd.Flags().Changed("max-moves")); err != nil {
				return err
			}
			c, _, err := f.placementClient()
			if err != nil {
				return err
			}
			return d.run(cmd.Context(), c)
		},
	}
	flags := cmd.Flags()
	flags.Int32Var(&d.maxMoves, "max-moves", 0, "how many objects move at a time (default 10)")
	flags.DurationVar(&d.deadline, "deadline", 0, "the time after which the condition Drained names what is left, such as 30m (default: none)")
	flags.StringVar(&d.onDeadline, "on-deadline", "", "Hold (default) only names what is left; Proceed also removes replicas whose replacement is not available")
	flags.BoolVar(&d.wait, "wait", true, "wait until the cluster is drained")
	flags.DurationVar(&d.timeout, "timeout", 0, "how long to wait, such as 1h (default: until the cluster is drained)")
	registerFlagCompletion(cmd, "on-deadline", cobra.FixedCompletions(
		[]string{string(v1alpha1.DeadlineHold), string(v1alpha1.DeadlineProceed)}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// validate returns all errors of the flags.
func (d *drainCommand) validate(maxMovesGiven bool) error {
	var errs []error
	if maxMovesGiven && (d.maxMoves < 1 || d.maxMoves > maxConcurrentMoves) {
		errs = append(errs, fmt.Errorf("flag --max-moves: must be from 1 to %d: got %d", maxConcurrentMoves, d.maxMoves))
	}
	if d.deadline < 0 {
		errs = append(errs, fmt.Errorf("flag --deadline: must be positive, such as 30m: got %s", d.deadline))
	}
	if !slices.Contains([]string{"", string(v1alpha1.DeadlineHold), string(v1alpha1.DeadlineProceed)}, d.onDeadline) {
		errs = append(errs, fmt.Errorf("flag --on-deadline: must be Hold or Proceed: got %q", d.onDeadline))
	}
	if d.timeout < 0 {
		errs = append(errs, fmt.Errorf("flag --timeout: must be positive, such as 1h: got %s", d.timeout))
	}
	return errors.Join(errs...)
}

// run starts the drain, and follows it.
func (d *drainCommand) run(ctx context.Context, c client.Client) error {
	cluster := &v1alpha1.Cluster{}
	if err := c.Get(ctx, client.ObjectKey{Name: d.cluster}, cluster); err != nil {
		return fmt.Errorf("get Cluster %s: %w", d.cluster, err)
	}
	patch, err := d.patch(cluster.Spec.Drain, time.Now())
	if err != nil {
		return err
	}
	if err := c.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("drain Cluster %s: %w", d.cluster, err)
	}
	if !d.wait {
		_, err := fmt.Fprintf(d.out, "%s is being drained\n", d.cluster)
		return err
	}
	return d.follow(ctx, c, cluster.Generation)
}

// patch returns a merge patch of the Cluster. A drain that is on keeps what no flag sets; a new one does not take over
// the settings of an earlier one, such as a deadline that has passed.
func (d *drainCommand) patch(present *v1alpha1.Drain, now time.Time) ([]byte, error) {
	drain := map[string]any{"mode": v1alpha1.DrainMove}
	hasDeadline := d.deadline != 0
	if present != nil && present.Mode == v1alpha1.DrainMove {
		hasDeadline = hasDeadline || present.Deadline != nil
	} else {
		drain["maxConcurrentMoves"], drain["deadline"], drain["onDeadline"] = nil, nil, nil
	}
	if d.onDeadline == string(v1alpha1.DeadlineProceed) && !hasDeadline {
		return nil, errors.New("flag --on-deadline: must not be Proceed without a deadline: set --deadline, too")
	}
	if d.maxMoves != 0 {
		drain["maxConcurrentMoves"] = d.maxMoves
	}
	if d.deadline != 0 {
		drain["deadline"] = metav1.NewTime(now.Add(d.deadline))
	}
	if d.onDeadline != "" {
		drain["onDeadline"] = d.onDeadline
	}
	return json.Marshal(map[string]any{"spec": map[string]any{"drain": drain}})
}

// follow prints the progress until the hub reports that the cluster is drained. Reports on an earlier generation of
// the Cluster are about another drain.
func (d *drainCommand) follow(ctx context.Context, c client.Reader, generation int64) error {
	wait := ctx
	if d.timeout > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, d.timeout)
		defer cancel()
	}
	p := &drainPrinter{out: d.out}
	cluster := &v1alpha1.Cluster{}
	for {
		err := c.Get(wait, client.ObjectKey{Name: d.cluster}, cluster)
		if err != nil && wait.Err() == nil {
			return fmt.Errorf("get Cluster %s: %w", d.cluster, err)
		}
		if wait.Err() == nil {
			if cluster.Spec.Drain == nil || cluster.Spec.Drain.Mode != v1alpha1.DrainMove {
				return fmt.Errorf("another client has ended the drain of %s", d.cluster)
			}
			drained := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionDrained)
			if drained != nil && drained.ObservedGeneration >= generation {
				if err := p.print(cluster.Status.Drain, drained); err != nil || drained.Status == metav1.ConditionTrue {
					return errors.Join(err, d.finish(cluster, drained))
				}
			}
		}
		select {
		case <-wait.Done():
			return d.unfinished(ctx, cluster)
		case <-time.After(d.poll):
		}
	}
}

// finish prints what stays in a drained cluster.
func (d *drainCommand) finish(cluster *v1alpha1.Cluster, drained *metav1.Condition) error {
	if drained.Status != metav1.ConditionTrue {
		return nil
	}
	lines := []string{d.cluster + " is drained"}
	if s := cluster.Status.Drain; s != nil && s.Staying > 0 {
		lines[0] = fmt.Sprintf("%s is drained, but for %d objects that are for this cluster only:", d.cluster, s.Staying)
		lines = append(lines, describeBlockers(s.Stays, s.Staying)...)
	}
	_, err := fmt.Fprintln(d.out, strings.Join(lines, "\n"))
	return err
}

// unfinished is the error of a wait that has ended before the drain.
func (d *drainCommand) unfinished(ctx context.Context, cluster *v1alpha1.Cluster) error {
	why := fmt.Sprintf("after %s", d.timeout)
	if ctx.Err() != nil {
		why = "yet"
	}
	lines := []string{fmt.Sprintf("%s is not drained %s. The drain goes on; kubectl patchbay cluster uncordon %s --end-drain ends it", d.cluster, why, d.cluster)}
	if s := cluster.Status.Drain; s != nil {
		lines = append(lines, describeBlockers(s.Blockers, s.Blocked)...)
		lines = append(lines, describeBlockers(s.Stays, s.Staying)...)
	}
	if drained := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionDrained); len(lines) == 1 && drained != nil && drained.Message != "" {
		lines = append(lines, "  "+drained.Message)
	}
	return errors.New(strings.Join(lines, "\n"))
}

// describeBlockers returns a line for each object, and one for those that are not listed.
func describeBlockers(listed []v1alpha1.DrainBlocker, all int32) []string {
	var lines []string
	for _, b := range listed {
		lines = append(lines, "  "+describeBlocker(b))
	}
	if more := int(all) - len(listed); more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", more))
	}
	return lines
}

func describeBlocker(b v1alpha1.DrainBlocker) string {
	return strings.TrimSuffix(fmt.Sprintf("%s (%s): %s", b.Object, b.Reason, b.Message), ": ")
}

// drainPrinter prints what has changed since it was last called.
type drainPrinter struct {
	out      io.Writer
	progress string
	reported map[string]bool // lines about objects
}

func (p *drainPrinter) print(s *v1alpha1.DrainStatus, drained *metav1.Condition) error {
	if s == nil {
		return nil
	}
	var lines []string
	parts := []string{fmt.Sprintf("%d of %d left", s.Left, s.Total), fmt.Sprintf("%d moving", s.Moving)}
	for _, part := range []struct {
		n    int32
		text string
	}{{s.Waiting, "waiting"}, {s.Blocked, "blocked"}, {s.Staying, "staying"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.text))
		}
	}
	progress := strings.Join(parts, ", ")
	if s.Left == 0 && drained.Status != metav1.ConditionTrue && drained.Message != "" {
		progress += ": " + drained.Message
	}
	if progress != p.progress {
		p.progress, lines = progress, append(lines, progress)
	}
	reported := map[string]bool{}
	for _, b := range slices.Concat(s.Blockers, s.Stays) {
		line := "  " + describeBlocker(b)
		if reported[line] = true; !p.reported[line] {
			lines = append(lines, line)
		}
	}
	if p.reported = reported; len(lines) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(p.out, strings.Join(lines, "\n"))
	return err
}
