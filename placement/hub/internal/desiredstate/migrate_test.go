// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

// An object that was deleted in a cluster can still leave that cluster.
func TestGoneCanLeave(t *testing.T) {
	t.Parallel()
	s := scopeOfWork(schema.GroupKind{Group: "batch", Kind: "Job"}, "now")
	s.Reports = map[string]scope.WorkReport{"east": {Gone: true, Counts: v1alpha1.ReplicaCounts{Total: 2, Available: 2}}}
	r := migrationTarget(s, v1alpha1.Target{Cluster: "east", State: v1alpha1.TargetDraining, RequestedReplicas: new(int32(0))}, Decision{Divided: true})
	if !r.ReportCurrent || r.Total != 0 || r.Available != 0 {
		t.Errorf("migrationTarget: got %+v, want it current and empty", r)
	}
}

// A move is not reported as blocked while its Pods may still be starting.
func TestBlockedIsReportedLate(t *testing.T) {
	t.Parallel()
	step := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		reason, blocked string
		after           time.Duration
		done            bool
		want            string // reason of the condition
		retry           time.Duration
	}{
		"just now": {"The next step may follow at once.", "west is not ready", 0, false, v1alpha1.ReasonProgressing, blockedAfter},
		"a while":  {"The condition is computed again when the time is over.", "west is not ready", blockedAfter - time.Second, false, v1alpha1.ReasonProgressing, time.Second},
		"too long": {"The move has made no step for too long.", "west is not ready", blockedAfter, false, v1alpha1.ReasonStalled, 0},
		"goes on":  {"The move waits for nothing.", "", time.Hour, false, v1alpha1.ReasonProgressing, 0},
		"done":     {"The move is complete.", "", time.Hour, true, v1alpha1.ReasonAsExpected, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, retry := moveBlockedCondition(tc.blocked, tc.done, step, step.Add(tc.after))
			isBlocked := c.Status == metav1.ConditionTrue
			if c.Type != v1alpha1.ConditionMoveBlocked || isBlocked != (tc.want == v1alpha1.ReasonStalled) || c.Reason != tc.want || retry != tc.retry {
				t.Errorf("%s\nmoveBlockedCondition: got %+v, retry after %s, want %s after %s", tc.reason, c, retry, tc.want, tc.retry)
			}
		})
	}
}
