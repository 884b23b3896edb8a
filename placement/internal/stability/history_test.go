// SPDX-License-Identifier: Apache-2.0

package stability

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var t0 = time.Unix(1000, 0)

// at returns an observation of a ready object some seconds after t0.
func at(seconds int, available int32) Observation {
	return Observation{At: t0.Add(time.Duration(seconds) * time.Second), Available: available, Ready: true}
}

func TestSample(t *testing.T) {
	t.Parallel()
	unknown := Sample{AtMost: math.MaxInt32}
	cases := map[string]struct {
		history History
		until   int
		stable  time.Duration
		want    Sample
		reason  string
	}{
		"no report": {
			until: 10, stable: 10 * time.Second, want: unknown,
			reason: "a cluster that has not reported may run anything",
		},
		"lasting": {
			history: History{at(0, 3)}, until: 10, stable: 10 * time.Second,
			want:   Sample{Available: 3, AtMost: 3, Ready: true},
			reason: "a report is in force until the next one",
		},
		"too short": {
			history: History{at(1, 3)}, until: 10, stable: 10 * time.Second, want: unknown,
			reason: "the report has lasted for 9 s of 10 s",
		},
		"in force at the start": {
			history: History{at(0, 1), at(4, 5), at(6, 3)}, until: 12, stable: 10 * time.Second,
			want:   Sample{Available: 1, AtMost: 5, Ready: true},
			reason: "1 was available until 2 s after the start of the window",
		},
		"superseded at the start": {
			history: History{at(0, 1), at(4, 5), at(6, 3)}, until: 14, stable: 10 * time.Second,
			want:   Sample{Available: 3, AtMost: 5, Ready: true},
			reason: "5 were available from the start of the window on",
		},
		"after the end": {
			history: History{at(0, 5), at(20, 2)}, until: 10, stable: 10 * time.Second,
			want:   Sample{Available: 2, AtMost: 5, Ready: true},
			reason: "a report after the last heartbeat is news, too",
		},
		"not ready for a moment": {
			history: History{at(0, 5), {At: at(5, 0).At, Available: 5}, at(6, 5)}, until: 10, stable: 10 * time.Second,
			want:   Sample{Available: 5, AtMost: 5},
			reason: "the object was not ready for a second of the window",
		},
		"one report is enough": {
			history: History{at(0, 5), at(10, 3)}, until: 10,
			want:   Sample{Available: 3, AtMost: 3, Ready: true},
			reason: "a window without a length trusts the report in force",
		},
		"negative": {
			history: History{at(0, 5), at(20, 3)}, until: 10, stable: -time.Minute,
			want:   Sample{Available: 3, AtMost: 5, Ready: true},
			reason: "a window does not begin after its end",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.want.Until = at(tc.until, 0).At
			if diff := cmp.Diff(tc.want, tc.history.Sample(tc.want.Until, tc.stable)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestAdd(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		history History
		add     Observation
		want    History
		reason  string
	}{
		"first":     {add: at(0, 1), want: History{at(0, 1)}, reason: "a history begins"},
		"repeated":  {history: History{at(0, 1)}, add: at(5, 1), want: History{at(0, 1)}, reason: "the first report is still in force"},
		"same time": {history: History{at(0, 1)}, add: at(0, 2), want: History{at(0, 1), at(0, 2)}, reason: "the order of receipt counts"},
		"clock set back": {
			history: History{at(0, 1), at(5, 2)}, add: at(2, 3), want: History{at(0, 1), at(5, 2), at(5, 3)},
			reason: "the report was received after the one at 5 s",
		},
		"clock set back, repeated": {
			history: History{at(0, 1), at(5, 2)}, add: at(2, 2), want: History{at(0, 1), at(5, 2)},
			reason: "the report at 5 s is still in force",
		},
		"old ones": {
			history: History{at(0, 1), at(5, 2), at(10, 3)}, add: at(16, 4), want: History{at(5, 2), at(10, 3), at(16, 4)},
			reason: "2 were available at the start of the window",
		},
		"old ones, repeated": {
			history: History{at(0, 1), at(5, 2), at(10, 3)}, add: at(30, 3), want: History{at(10, 3)},
			reason: "a settled object needs one entry",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := slices.Clone(tc.history)
			if diff := cmp.Diff(tc.want, tc.history.Add(tc.add, 10*time.Second)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, tc.history); diff != "" {
				t.Errorf("the history itself has changed: -want +got\n%s", diff)
			}
		})
	}
}

// A sample is what a look at every moment of the window says, although Add drops what is old.
func TestSampleIsTheWholeWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		window := time.Duration(rapid.IntRange(0, 30).Draw(t, "window")) * time.Second
		var h History
		var all []Observation
		now := 0
		for range rapid.IntRange(0, 20).Draw(t, "reports") {
			now += rapid.IntRange(0, 5).Draw(t, "seconds")
			o := at(now, rapid.Int32Range(0, 3).Draw(t, "available"))
			o.Ready = rapid.Bool().Draw(t, "ready")
			h, all = h.Add(o, window), append(all, o)
		}
		behind := rapid.IntRange(0, int(window/time.Second)).Draw(t, "behind")
		until := at(now-behind, 0).At
		stable := time.Duration(rapid.IntRange(0, int(window/time.Second)-behind).Draw(t, "stable")) * time.Second

		want := Sample{AtMost: math.MaxInt32, Until: until}
		if len(all) > 0 && !all[0].At.After(until.Add(-stable)) {
			want.Available, want.AtMost, want.Ready = math.MaxInt32, 0, true
			for i, o := range all {
				if i+1 < len(all) && !all[i+1].At.After(until.Add(-stable)) { // superseded before the window
					continue
				}
				want.Available, want.AtMost, want.Ready = min(want.Available, o.Available), max(want.AtMost, o.Available), want.Ready && o.Ready
			}
		}
		if diff := cmp.Diff(want, h.Sample(until, stable)); diff != "" {
			t.Fatalf("-want +got\n%s\n%+v", diff, all)
		}
	})
}

// A clock that jumps never makes a history say more than one whose clock did not.
func TestJumpingClockClaimsNoMore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var jumped, right History
		now := 0
		for range rapid.IntRange(1, 10).Draw(t, "reports") {
			now += rapid.IntRange(0, 5).Draw(t, "seconds")
			o := at(now, rapid.Int32Range(0, 3).Draw(t, "available"))
			right = right.Add(o, time.Hour)
			o.At = o.At.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "ahead")) * time.Second)
			jumped = jumped.Add(o, time.Hour)
		}
		stable := time.Duration(rapid.IntRange(0, 20).Draw(t, "stable")) * time.Second
		until := at(now, 0).At
		got, most := jumped.Sample(until, stable), right.Sample(until, stable)
		if got.Available > most.Available || got.AtMost < most.AtMost || got.Ready && !most.Ready {
			t.Fatalf("%+v\nmore than %+v", got, most)
		}
	})
}

func TestWindow(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason    string
		stable    time.Duration
		rollbacks int32
		want      time.Duration
	}{
		{"a move that gives nothing back waits as users say", 10 * time.Second, 0, 10 * time.Second},
		{"what failed after this time must last for longer", 10 * time.Second, 1, 20 * time.Second},
		{"each failure doubles it", 10 * time.Second, 3, 80 * time.Second},
		{"a move must not wait for ever", 10 * time.Second, 7, MaxWindow},
		{"a stored number must not overflow", 10 * time.Second, math.MaxInt32, MaxWindow},
		{"users trust one report", 0, 0, 0},
		{"until replicas fail that one report said are available", 0, 1, time.Second},
		{"each failure doubles that", 0, 3, 4 * time.Second},
		{"a target that crashes after each start ends the alternation", 0, math.MaxInt32, MaxWindow},
		{"the schema rejects it, and an object may be older than the schema", time.Hour, 0, MaxWindow},
		{"the schema rejects it, and an object may be older than the schema", -time.Hour, 0, 0},
	} {
		if got := Window(tc.stable, tc.rollbacks); got != tc.want {
			t.Errorf("%s: %s after %d roll-backs is %s, want %s", tc.reason, tc.stable, tc.rollbacks, got, tc.want)
		}
	}
}
