// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

func TestInShort(t *testing.T) {
	t.Parallel()
	many := make([]v1alpha1.Target, 10)
	for i := range many {
		many[i] = v1alpha1.Target{Cluster: "c", State: v1alpha1.TargetActive}
	}
	for name, tc := range map[string]struct {
		reason  string
		targets []v1alpha1.Target
		want    string
	}{
		"Nowhere": {reason: "There is nothing to say."},
		"Whole":   {"Kinds without replicas.", []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetActive}, {Cluster: "west", State: v1alpha1.TargetActive}}, "east, west"},
		"Moving": {"What is under way is said.", []v1alpha1.Target{
			{Cluster: "east", State: v1alpha1.TargetDraining, RequestedReplicas: new(int32(1))}, {Cluster: "west", State: v1alpha1.TargetActive, RequestedReplicas: new(int32(3))},
		}, "east=1 (Draining), west=3"},
		"Many": {"A line stays a line.", many, "c, c, c, c, c, c, c, c, 2 more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := inShort(tc.targets); got != tc.want {
				t.Errorf("%s\ninShort: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// A message that is cut within a character would be stored otherwise, and written again with each
// look.
func TestLongMessagesAreText(t *testing.T) {
	t.Parallel()
	var c conditions
	c.add("Placed", true, "AsExpected", "."+strings.Repeat("ä", maxMessage))
	if got := c.list[0].Message; !utf8.ValidString(got) || len(got) > maxMessage {
		t.Errorf("got %d bytes, valid %t", len(got), utf8.ValidString(got))
	}
}

// A move that goes on is not reported as blocked: its Pods take a while to start.
func TestBlockedIsReportedLate(t *testing.T) {
	t.Parallel()
	step := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		reason, why string
		after       time.Duration
		done, want  bool
		again       time.Duration
	}{
		"just now": {"It may go on at once.", "west is not ready", 0, false, false, blockedAfter},
		"a while":  {"It is looked at again when that is over.", "west is not ready", blockedAfter - time.Second, false, false, time.Second},
		"too long": {"It does not go on.", "west is not ready", blockedAfter, false, true, 0},
		"goes on":  {"It waits for nothing.", "", time.Hour, false, false, 0},
		"done":     {"Nothing is left to do.", "", time.Hour, true, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &pass{hub: &hub{now: func() time.Time { return step.Add(tc.after) }}, done: tc.done}
			p.saidBlocked(tc.why, step)
			if got := meta.IsStatusConditionTrue(p.said.list, v1alpha1.ConditionMoveBlocked); got != tc.want || p.after != tc.again {
				t.Errorf("%s\nsaidBlocked: got %t, again after %s, want %t after %s", tc.reason, got, p.after, tc.want, tc.again)
			}
		})
	}
}

// More targets than an Assignment holds are refused, with those that the object leaves.
func TestTooManyTargets(t *testing.T) {
	t.Parallel()
	w := wanted{replicas: map[string]int64{}, source: "Placement shop/all"}
	for i := range v1alpha1.MaxTargets {
		w.replicas[fmt.Sprint(i)] = 0
	}
	p, a := &pass{}, &v1alpha1.Assignment{}
	a.Spec.Targets = []v1alpha1.Target{{Cluster: "0"}}
	if err := p.tooMany(a, w); err != nil {
		t.Errorf("tooMany: got %v for %d clusters, want none", err, v1alpha1.MaxTargets)
	}
	a.Spec.Targets = append(a.Spec.Targets, v1alpha1.Target{Cluster: "leaving"})
	mistake, ok := errors.AsType[*policy.Error](p.tooMany(a, w))
	if !ok || mistake.Reason != v1alpha1.ReasonTooManyTargets || !strings.Contains(mistake.Error(), "Placement shop/all: spec.clusters: 501") {
		t.Errorf("tooMany: got %v, want a refusal that counts 501", mistake)
	}
}

// An Assignment of many clusters stays within its bound, whatever they report.
func TestReportIsBounded(t *testing.T) {
	t.Parallel()
	broken := make([]v1alpha1.BrokenPod, 20)
	for i := range broken {
		broken[i] = v1alpha1.BrokenPod{Name: "web", Reason: "CrashLoopBackOff", Message: strings.Repeat("x", 256)}
	}
	for name, tc := range map[string]struct {
		reason   string
		clusters int
		message  string
		want     bool
	}{
		"few":     {"All fits.", 3, "short", false},
		"broken":  {"Pods are left out.", 200, "short", true},
		"message": {"So are messages.", 500, strings.Repeat("m", 1024), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &v1alpha1.AssignmentStatus{}
			for i := range tc.clusters {
				s.Clusters = append(s.Clusters, v1alpha1.ClusterReport{
					Cluster: v1alpha1.ClusterName(fmt.Sprintf("%055d", i)), Message: tc.message, Replicas: &v1alpha1.ReplicaCounts{Total: 1000},
					Associated: &v1alpha1.Associated{Pods: map[string]int32{"CrashLoopBackOff": 20}, Broken: broken},
				})
			}
			bound(s)
			raw, err := json.Marshal(s)
			if err != nil || len(raw) > maxReports || s.Truncated != tc.want || len(s.Clusters) != tc.clusters {
				t.Errorf("%s\nbound: got %d bytes, truncated %t, %d rows, %v", tc.reason, len(raw), s.Truncated, len(s.Clusters), err)
			}
		})
	}
}
