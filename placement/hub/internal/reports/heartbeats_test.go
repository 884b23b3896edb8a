// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// start is when each test begins, by the hub's clock.
var start = time.Unix(10_000, 0)

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// beat is a heartbeat of an agent, with times in seconds after the start.
type beat struct {
	received, renewed int
	delay             string
	holder            string
}

// none is the delay of an agent that does not date its reports.
const none = "none"

// left begins a delay that an agent of a later version has written at the start, and that the present one keeps.
const left = "left "

// lease returns the heartbeat of east.
func (b beat) lease() *coordinationv1.Lease {
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ClusterNamespacePrefix + "east", Name: v1alpha1.HeartbeatLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &b.holder, RenewTime: &metav1.MicroTime{Time: start.Add(seconds(b.renewed))}},
	}
	switch delay, isLeft := strings.CutPrefix(b.delay, left); {
	case isLeft:
		l.Annotations = map[string]string{v1alpha1.ReportDelayAnnotation: delay + "@" + start.UTC().Format(metav1.RFC3339Micro)}
	case b.delay != none:
		l.Annotations = map[string]string{v1alpha1.ReportDelayAnnotation: b.delay + "@" + l.Spec.RenewTime.UTC().Format(metav1.RFC3339Micro)}
	}
	return l
}

func TestHeartbeatsDateReports(t *testing.T) {
	t.Parallel()
	const unknown = -1
	for name, tc := range map[string]struct {
		reason string
		beats  []beat
		want   int // seconds after the start
		dated  bool
	}{
		"first":     {"the first one that a hub reads may be of long ago", []beat{{0, 0, "0s", ""}}, unknown, false},
		"second":    {"the clocks are compared once, by a heartbeat that may be late", []beat{{0, 0, "0s", ""}, {10, 10, "0s", ""}}, unknown, true},
		"third":     {"everything that changed before it was written is reported", []beat{{0, 0, "0s", ""}, {10, 10, "0s", ""}, {20, 20, "0s", ""}}, 20, true},
		"unstarted": {"a hub that starts reads an old one first", []beat{{600, 0, "0s", ""}, {610, 610, "0s", ""}, {620, 620, "0s", ""}}, 620, true},
		"a change is not reported": {
			"the change may be the failure of all replicas", []beat{{0, 0, "0s", ""}, {10, 10, "0s", ""}, {20, 20, "0s", ""}, {30, 30, "3s", ""}}, 27, true,
		},
		"goes back": {
			"what was known once stays known", []beat{{0, 0, "0s", ""}, {10, 10, "0s", ""}, {20, 20, "0s", ""}, {30, 30, "25s", ""}}, 20, true,
		},
		"the cluster's API server is dead": {
			"the agent cannot know of changes", []beat{{0, 0, "0s", ""}, {10, 10, "0s", ""}, {20, 20, "0s", ""}, {30, 30, "", ""}}, 20, false,
		},
		"not a duration":  {"it comes from an unknown version", []beat{{0, 0, "0s", ""}, {10, 10, "0s", ""}, {20, 20, "now", ""}}, unknown, false},
		"negative":        {"an agent cannot report what will change", []beat{{0, 0, "0s", ""}, {10, 10, "0s", ""}, {20, 20, "-1h", ""}}, unknown, false},
		"agent is ahead":  {"the clocks need not agree", []beat{{0, 900, "0s", ""}, {10, 910, "0s", ""}, {20, 920, "0s", ""}}, 20, true},
		"agent is behind": {"the clocks need not agree", []beat{{0, -900, "0s", ""}, {10, -890, "0s", ""}, {20, -880, "1s", ""}}, 19, true},
		"late": {
			"a broken connection delivers it after minutes, when the replicas have failed",
			[]beat{{0, 0, "0s", ""}, {10, 10, "0s", ""}, {20, 20, "0s", ""}, {620, 30, "0s", ""}}, 30, true,
		},
		"first two late": {"the fastest one compares the clocks", []beat{{0, 0, "0s", ""}, {18, 10, "0s", ""}, {29, 20, "0s", ""}, {30, 30, "0s", ""}}, 30, true},
		"repeated": {
			"the same heartbeat proves nothing new", []beat{{0, 0, "0s", ""}, {10, 10, "0s", ""}, {20, 20, "0s", ""}, {600, 20, "0s", ""}}, 20, true,
		},
		"restored": {
			"a heartbeat from a backup proves nothing", []beat{{0, 0, "0s", ""}, {10, 10, "0s", ""}, {20, 20, "0s", ""}, {600, 5, "0s", ""}}, 20, true,
		},
		"other agent": {
			"its clock is another one, and its first heartbeat may be old", []beat{{0, 0, "0s", ""}, {10, 10, "0s", ""}, {20, 20, "0s", ""}, {30, 900, "0s", "b"}}, 20, true,
		},
		"other agent goes on": {
			"its heartbeats compare its own clock",
			[]beat{{0, 0, "0s", ""}, {10, 10, "0s", ""}, {20, 20, "0s", ""}, {30, 900, "0s", "b"}, {40, 910, "0s", "b"}, {50, 920, "0s", "b"}}, 50, true,
		},
		"earlier version": {
			"it repeats a failed report after a minute at most", []beat{{0, 0, none, ""}, {10, 10, none, ""}, {200, 200, none, ""}}, 130, true,
		},
		"downgrade": {
			"the agent dates nothing, whatever a later version has left", []beat{{0, 0, "0s", ""}, {100, 100, left + "0s", ""}, {200, 200, left + "0s", ""}}, 130, true,
		},
		"downgrade without the cluster's API server": {
			"the later version did not know; the earlier one reports", []beat{{0, 0, "", ""}, {100, 100, left, ""}, {200, 200, left, ""}}, 130, true,
		},
		"clock set forward": {"the agent's clock cannot hide time", []beat{{0, 0, "0s", ""}, {10, 10, "0s", ""}, {20, 80, "0s", ""}, {30, 90, "0s", ""}}, 30, true},
		"clock set back":    {"in doubt the report is older", []beat{{0, 100, "0s", ""}, {10, 110, "0s", ""}, {20, 120, "0s", ""}, {80, 121, "0s", ""}}, 21, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h heartbeats
			for _, b := range tc.beats {
				before := h.until
				if advanced := h.observe(b.lease(), start.Add(seconds(b.received))); advanced != h.until.After(before) {
					t.Errorf("heartbeat of %d: advanced %t, until is %s after %s", b.renewed, advanced, h.until, before)
				}
			}
			want := start.Add(seconds(tc.want))
			if tc.want == unknown {
				want = time.Time{}
			}
			if !h.until.Equal(want) || h.dated != tc.dated {
				t.Errorf("%s: complete until %s, dated %t, want %s, %t", tc.reason, h.until, h.dated, want, tc.dated)
			}
		})
	}
}

// A clock that was set back is trusted again after some heartbeats, whether or not its times pass earlier ones by then.
func TestHeartbeatsForgetClocks(t *testing.T) {
	t.Parallel()
	for _, back := range []int{5, 3600} {
		var h heartbeats
		at := 0
		for i := range 10 + maxHeartbeats + 1 { // one may count as one from a restored backup
			at += 10
			renewed := at
			if i >= 10 {
				renewed -= back
			}
			h.observe(beat{renewed: renewed, delay: "0s"}.lease(), start.Add(seconds(at)))
			if len(h.offsets) > maxHeartbeats {
				t.Fatalf("set back by %d s: %d offsets, want at most %d", back, len(h.offsets), maxHeartbeats)
			}
		}
		if want := start.Add(seconds(at)); !h.until.Equal(want) {
			t.Errorf("set back by %d s: complete until %s, want %s", back, h.until, want)
		}
	}
}
