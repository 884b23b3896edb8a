// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/placement/internal/migration"
)

func TestWithdrawsTrafficBeforeAShrink(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	east := migration.Target{
		Cluster: "east", State: migration.Draining, Requested: 4, Reachable: true, ReportCurrent: true, Ready: true, StableReady: true,
		Available: 4, AtMost: 4, Total: 4, Until: now, Fallback: 4, Since: now.Add(-time.Hour), Serves: true, Replacements: 4, ReplacementsIn: "south",
	}
	west := migration.Target{
		Cluster: "west", Wanted: true, Desired: 4, State: migration.Active, Requested: 4, Reachable: true, ReportCurrent: true, Ready: true, StableReady: true,
		Available: 4, AtMost: 4, Total: 4, Until: now, Since: now.Add(-time.Hour),
	}
	type changes func(in *migration.Input, east, west *migration.Target)
	withdrawn := func(_ *migration.Input, east, _ *migration.Target) { east.Withdrawn = true }
	for name, tc := range map[string]struct {
		reason   string
		change   []changes
		withdraw bool
		left     int32 // in east
		blocked  migration.BlockedReason
		message  string
	}{
		"Replaced":     {reason: "Enough replicas are available in west: the endpoints of east are withdrawn first.", withdraw: true, left: 4, blocked: migration.NotWithdrawn, message: "until its endpoints are withdrawn"},
		"Acknowledged": {reason: "Then east may shrink.", change: []changes{withdrawn}, withdraw: true, left: 3},
		"NoTraffic":    {reason: "Without Services of other clusters there is nothing to withdraw.", change: []changes{func(_ *migration.Input, east, _ *migration.Target) { east.Serves = false }}, left: 3},
		"Waits": {reason: "South has not acknowledged: its clients still use east.", change: []changes{withdrawn, func(_ *migration.Input, east, _ *migration.Target) {
			east.TrafficIn, east.TrafficCause = "south", "it cannot be reached"
		}}, withdraw: true, left: 4, blocked: migration.NotWithdrawn, message: "until south has acknowledged that it sends no traffic to them: it cannot be reached"},
		"NoEndpoints": {reason: "The replicas of west are available, and south has no endpoints of them yet.", change: []changes{func(_ *migration.Input, east, _ *migration.Target) { east.Replacements = 3 }},
			left: 4, blocked: migration.NotWithdrawn, message: "until south has endpoints of enough replicas in the clusters that keep the object: it has 3"},
		"TooFew": {reason: "With 3 in west, all traffic on them would be too much.", change: []changes{func(_ *migration.Input, _, west *migration.Target) { west.Available, west.AtMost = 3, 3 }},
			left: 4, blocked: migration.NotAvailable, message: "replicas stay in east"},
		"AfterAStep": {reason: "A withdrawal stays while west has not reported since the last step.", change: []changes{withdrawn, func(_ *migration.Input, east, west *migration.Target) {
			east.Requested, east.Since, west.Available = 2, now, 0
		}}, withdraw: true, left: 2, blocked: migration.NotReported},
		"RolledBack": {reason: "West fails: east gets replicas and traffic again.", change: []changes{withdrawn, func(_ *migration.Input, east, west *migration.Target) {
			east.Requested, east.Available, east.AtMost, west.Available, west.AtMost = 2, 2, 2, 0, 0
		}}, left: 4, blocked: migration.NotAvailable},
		"Fails": {reason: "West fails before the first step: no other cluster would have endpoints.", change: []changes{withdrawn, func(_ *migration.Input, _, west *migration.Target) {
			west.Available, west.AtMost = 0, 0
		}}, left: 4, blocked: migration.NotAvailable},
		"FailsInPart": {reason: "Half of the replicas are too few.", change: []changes{withdrawn, func(_ *migration.Input, _, west *migration.Target) {
			west.Available, west.AtMost = 2, 2
		}}, left: 4, blocked: migration.NotAvailable},
		"Unreachable": {reason: "Whether west fails is unknown.", change: []changes{withdrawn, func(_ *migration.Input, _, west *migration.Target) {
			west.Reachable = false
		}}, withdraw: true, left: 4, blocked: migration.Unreachable},
		"Gone": {reason: "West is not in the inventory any more: no cluster has its endpoints.", change: []changes{withdrawn, func(_ *migration.Input, _, west *migration.Target) {
			west.Reachable, west.NotInInventory = false, true
		}}, left: 4, blocked: migration.NotInInventory},
		"Grows": {reason: "An autoscaler requests one more in west: none has failed.", change: []changes{withdrawn, func(in *migration.Input, _, west *migration.Target) {
			in.MaxSurge, west.Desired = 5, 5
		}}, withdraw: true, left: 3, blocked: migration.NotAvailable},
		"AllAtOnce": {reason: "One in east is unavailable. The hub cannot take it alone.", change: []changes{func(_ *migration.Input, east, _ *migration.Target) {
			east.AllAtOnce, east.Available, east.AtMost = true, 3, 3
		}}, withdraw: true, left: 4, blocked: migration.NotWithdrawn},
		"SmallSurge": {reason: "With a small surge west gets its replicas only as east loses some.", change: []changes{func(in *migration.Input, _, west *migration.Target) {
			in.MaxSurge, west.Requested, west.Available, west.AtMost = 1, 1, 1, 1
		}}, left: 3, blocked: migration.NotAvailable},
		"Returns": {reason: "East keeps the object after all.", change: []changes{withdrawn, func(_ *migration.Input, east, _ *migration.Target) { east.Wanted, east.Desired = true, 4 }}, left: 4},
		"Proceeds": {reason: "The deadline has passed, and the policy says what then.", change: []changes{func(in *migration.Input, east, _ *migration.Target) {
			in.ProceedAtDeadline, in.Deadline, in.DesiredSince = true, time.Minute, now.Add(-time.Hour)
			east.TrafficIn = "south"
		}}, withdraw: true, left: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, e, w := migration.Input{Divided: true, MaxSurge: 4, Now: now, Stable: 10 * time.Second}, east, west
			for _, change := range tc.change {
				change(&in, &e, &w)
			}
			in.Targets = []migration.Target{e, w}
			out := migration.Step(in)
			if got := out.Transitions[0]; got.Withdraw != tc.withdraw || got.Requested != tc.left {
				t.Errorf("%s: withdraw %t with %d replicas, want %t with %d", tc.reason, got.Withdraw, got.Requested, tc.withdraw, tc.left)
			}
			if out.Blocked.Reason != tc.blocked || !strings.Contains(out.Blocked.Message, tc.message) {
				t.Errorf("%s: blocked %+v, want %q %q", tc.reason, out.Blocked, tc.blocked, tc.message)
			}
		})
	}
}

// Objects whose clusters have all replicas, such as DaemonSets, are removed only after the withdrawal.
func TestWithdrawsTrafficBeforeARemoval(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	in := migration.Input{Now: now, Targets: []migration.Target{
		{Cluster: "east", State: migration.Draining, Reachable: true, ReportCurrent: true, Serves: true, Replacements: 1, Since: now.Add(-time.Hour)},
		{Cluster: "west", Wanted: true, State: migration.Active, Reachable: true, ReportCurrent: true, Ready: true, StableReady: true, Since: now.Add(-time.Hour)},
	}}
	if out := migration.Step(in); !out.Transitions[0].Withdraw || out.Transitions[0].State != migration.Draining || out.Blocked.Reason != migration.NotWithdrawn {
		t.Errorf("before the withdrawal: %+v", out)
	}
	in.Targets[0].Withdrawn, in.Targets[0].TrafficIn = true, "west"
	if out := migration.Step(in); !out.Transitions[0].Withdraw || out.Transitions[0].State != migration.Draining || out.Blocked.Cluster != "west" {
		t.Errorf("before the acknowledgment: %+v", out)
	}
	in.Targets[1].Reachable = false
	if out := migration.Step(in); !out.Transitions[0].Withdraw {
		t.Errorf("west is silent: %+v", out)
	}
	in.Targets[1].Reachable, in.Targets[1].Ready, in.Targets[1].StableReady = true, false, false
	if out := migration.Step(in); out.Transitions[0].Withdraw || out.Blocked.Reason != migration.NotReady {
		t.Errorf("west is not ready any more: %+v", out)
	}
	ordered := in
	ordered.Targets = slices.Clone(in.Targets)
	if ordered.Targets[0].State = migration.Removing; !migration.Step(ordered).Transitions[0].Withdraw {
		t.Error("the Pods of east end, and their endpoints return")
	}
	in.Targets[0].TrafficIn, in.Targets[1].Ready, in.Targets[1].StableReady = "", true, true
	if out := migration.Step(in); out.Transitions[0].State != migration.Removing {
		t.Errorf("after the acknowledgment: %+v", out)
	}
}

// What breaks first leaves with its endpoints: no other cluster has replicas that could replace them before.
func TestBreakBeforeMakeAwaitsNoTraffic(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	east := migration.Target{Cluster: "east", State: migration.Draining, Reachable: true, ReportCurrent: true, Serves: true, ReplacementsIn: "south", Since: now.Add(-time.Hour)}
	west := migration.Target{Cluster: "west", Wanted: true, State: migration.Pending, Reachable: true}
	for name, tc := range map[string]struct {
		reason string
		change func(east *migration.Target)
	}{
		"no replacements":  {"West starts only when east has stopped.", func(*migration.Target) {}},
		"replacements":     {"Another cluster has replicas: that east stops does not depend on them.", func(r *migration.Target) { r.Replacements = 4 }},
		"withdrawn before": {"The policy has changed to break first, and south does not answer.", func(r *migration.Target) { r.Withdrawn, r.TrafficIn = true, "south" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from := east
			tc.change(&from)
			out := migration.Step(migration.Input{BreakBeforeMake: true, Now: now, Targets: []migration.Target{from, west}})
			if got := out.Transitions[0]; got.State != migration.Removing || got.Withdraw || out.Blocked.Reason != migration.MustStop {
				t.Errorf("%s\ngot %+v, blocked %+v", tc.reason, got, out.Blocked)
			}
		})
	}
}
