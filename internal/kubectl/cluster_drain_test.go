// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// drainReports is an API server that reports one status of a draining Cluster after another, and the last one for ever.
type drainReports struct {
	client.Reader

	reports []v1alpha1.Cluster
	ended   func() // called when the last one is read; may be nil
}

func (r *drainReports) Get(ctx context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, ok := o.(*v1alpha1.Cluster)
	if !ok {
		return fmt.Errorf("got a %T, want a Cluster", o)
	}
	r.reports[0].DeepCopyInto(c)
	if len(r.reports) > 1 {
		r.reports = r.reports[1:]
	} else if r.ended != nil {
		r.ended()
	}
	return nil
}

// drainReport is a Cluster whose hub has observed a generation.
func drainReport(generation int64, s v1alpha1.DrainStatus, status metav1.ConditionStatus, message string) v1alpha1.Cluster {
	c := v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Drain: &v1alpha1.Drain{Mode: v1alpha1.DrainMove}}}
	c.Status.Drain = &s
	c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionDrained, Status: status, ObservedGeneration: generation, Message: message}}
	return c
}

func TestDrainPrintsProgress(t *testing.T) {
	t.Parallel()
	full := v1alpha1.DrainBlocker{Object: "Deployment shop/web", Reason: "Unschedulable", Message: "west is full"}
	pinned := v1alpha1.DrainBlocker{Object: "DaemonSet infra/log", Reason: "Pinned", Message: "its policy allows no other cluster"}
	blocked := v1alpha1.DrainStatus{Total: 50, Left: 12, Moving: 5, Waiting: 5, Blocked: 2, Blockers: []v1alpha1.DrainBlocker{full}}
	rest := v1alpha1.DrainStatus{Total: 50, Left: 1, Staying: 1, Stays: []v1alpha1.DrainBlocker{pinned}}
	for name, tc := range map[string]struct {
		reason    string
		reports   []v1alpha1.Cluster
		timeout   time.Duration
		interrupt bool
		want      string
		wantErr   string
	}{
		"done": {
			reason: "each change is one line, and the report on an earlier drain is none",
			reports: []v1alpha1.Cluster{
				drainReport(2, v1alpha1.DrainStatus{}, metav1.ConditionTrue, ""),
				drainReport(3, v1alpha1.DrainStatus{Total: 50, Left: 50, Moving: 5, Waiting: 45}, metav1.ConditionFalse, "50 objects have not left yet"),
				drainReport(3, blocked, metav1.ConditionFalse, "2 of 12 objects cannot leave"),
				drainReport(3, blocked, metav1.ConditionFalse, "2 of 12 objects cannot leave"),
				drainReport(3, v1alpha1.DrainStatus{Total: 50}, metav1.ConditionUnknown, "the cluster does not report what it still has"),
				drainReport(3, v1alpha1.DrainStatus{Total: 50}, metav1.ConditionTrue, ""),
			},
			want: "50 of 50 left, 5 moving, 45 waiting\n" +
				"12 of 50 left, 5 moving, 5 waiting, 2 blocked\n" +
				"  Deployment shop/web (Unschedulable): west is full\n" +
				"0 of 50 left, 0 moving: the cluster does not report what it still has\n" +
				"0 of 50 left, 0 moving\n" +
				"east is drained\n",
		},
		"stays": {
			reason:  "a user must know what still runs in the cluster before it is switched off",
			reports: []v1alpha1.Cluster{drainReport(3, rest, metav1.ConditionTrue, "")},
			want: "1 of 50 left, 0 moving, 1 staying\n" +
				"  DaemonSet infra/log (Pinned): its policy allows no other cluster\n" +
				"east is drained, but for 1 objects that are for this cluster only:\n" +
				"  DaemonSet infra/log (Pinned): its policy allows no other cluster\n",
		},
		"timeout": {
			reason:  "the error names the blockers, and those that are not listed",
			reports: []v1alpha1.Cluster{drainReport(3, blocked, metav1.ConditionFalse, "2 of 12 objects cannot leave")},
			timeout: 50 * time.Millisecond,
			want:    "12 of 50 left, 5 moving, 5 waiting, 2 blocked\n  Deployment shop/web (Unschedulable): west is full\n",
			wantErr: "east is not drained after 50ms. The drain goes on; kubectl patchbay cluster uncordon east --end-drain ends it\n" +
				"  Deployment shop/web (Unschedulable): west is full\n  and 1 more",
		},
		"interrupt": {
			reason:    "the drain does not end with the command",
			reports:   []v1alpha1.Cluster{drainReport(3, v1alpha1.DrainStatus{Total: 5, Left: 4, Moving: 4}, metav1.ConditionFalse, "4 objects have not left yet")},
			interrupt: true,
			want:      "4 of 5 left, 4 moving\n",
			wantErr: "east is not drained yet. The drain goes on; kubectl patchbay cluster uncordon east --end-drain ends it\n" +
				"  4 objects have not left yet",
		},
		"ended": {
			reason:  "another person has ended the drain",
			reports: []v1alpha1.Cluster{{}},
			wantErr: "another client has ended the drain of east",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var out bytes.Buffer
			d := &drainCommand{cluster: "east", timeout: tc.timeout, poll: time.Millisecond, out: &out}
			r := &drainReports{reports: tc.reports}
			if tc.interrupt {
				r.ended = func() { time.AfterFunc(5*time.Millisecond, cancel) }
			}
			err := d.follow(ctx, r, 3)
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			message := ""
			if err != nil {
				message = err.Error()
			}
			if diff := cmp.Diff(tc.wantErr, message); diff != "" {
				t.Errorf("%s: error: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestDrainPatch(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	on, off := &v1alpha1.Drain{Mode: v1alpha1.DrainMove, Deadline: &metav1.Time{}}, &v1alpha1.Drain{Mode: v1alpha1.DrainOff, Deadline: &metav1.Time{}}
	for name, tc := range map[string]struct {
		reason  string
		command drainCommand
		present *v1alpha1.Drain
		want    string
	}{
		"new":   {"the defaults are the schema's", drainCommand{}, nil, `{"spec":{"drain":{"deadline":null,"maxConcurrentMoves":null,"mode":"Move","onDeadline":null}}}`},
		"again": {"a passed deadline is not that of the next drain", drainCommand{}, off, `{"spec":{"drain":{"deadline":null,"maxConcurrentMoves":null,"mode":"Move","onDeadline":null}}}`},
		"on":    {"a repeated command keeps what is set", drainCommand{maxMoves: 3}, on, `{"spec":{"drain":{"maxConcurrentMoves":3,"mode":"Move"}}}`},
		"all": {
			"each flag sets its field", drainCommand{maxMoves: 3, deadline: time.Minute, onDeadline: "Proceed"}, nil,
			`{"spec":{"drain":{"deadline":"2027-01-15T08:01:00Z","maxConcurrentMoves":3,"mode":"Move","onDeadline":"Proceed"}}}`,
		},
		"proceed": {"the deadline is set already", drainCommand{onDeadline: "Proceed"}, on, `{"spec":{"drain":{"mode":"Move","onDeadline":"Proceed"}}}`},
		"never":   {"nothing happens without a deadline", drainCommand{onDeadline: "Proceed"}, off, "flag --on-deadline: must not be Proceed without a deadline: set --deadline, too"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := tc.command.patch(tc.present, now)
			got := string(raw)
			if err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("%s\ngot  %s\nwant %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestDrainRejectsFlags(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"--max-moves=0":      "flag --max-moves: must be from 1 to 1000: got 0",
		"--max-moves=1001":   "flag --max-moves: must be from 1 to 1000: got 1001",
		"--deadline=-1s":     "flag --deadline: must be positive",
		"--on-deadline=Skip": `flag --on-deadline: must be Hold or Proceed: got "Skip"`,
		"--timeout=-1s":      "flag --timeout: must be positive",
	} {
		var out bytes.Buffer
		if err := Run(t.Context(), []string{"cluster", "drain", "east", flag}, &out, &out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", flag, err, want)
		}
	}
}
