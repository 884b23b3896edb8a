// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNext(t *testing.T) {
	t.Parallel()
	now := time.Unix(10_000, 0)
	longAgo, lately := now.Add(-BlockedLimit), now.Add(time.Second-BlockedLimit)
	one, two := Limits{MaxConcurrentMoves: 1}, Limits{MaxConcurrentMoves: 2}
	for name, tc := range map[string]struct {
		reason     string
		candidates []Candidate
		limits     Limits
		want       string // names, in any order
	}{
		"priority": {
			"The most important object is safe first.",
			[]Candidate{{Name: "a", State: Waiting, Size: Size{Replicas: 1}}, {Name: "b", State: Waiting, Priority: 5, Size: Size{Replicas: 9}}}, one, "b",
		},
		"small": {
			"Many small objects are safe in the time of a large one.",
			[]Candidate{{Name: "a", State: Waiting, Size: Size{MilliCPU: 2}}, {Name: "b", State: Waiting, Size: Size{MilliCPU: 1, Memory: 9}}}, one, "b",
		},
		"memory":     {"Memory decides where the CPU is equal.", []Candidate{{Name: "a", State: Waiting, Size: Size{Memory: 2}}, {Name: "b", State: Waiting}}, one, "b"},
		"name":       {"The order is the same in each leader.", []Candidate{{Name: "b", State: Waiting}, {Name: "a", State: Waiting}}, one, "a"},
		"negative":   {"A user puts an object last.", []Candidate{{Name: "a", State: Waiting, Priority: -1}, {Name: "b", State: Waiting}}, one, "b"},
		"full":       {"The limit is reached.", []Candidate{{Name: "a", State: Moving}, {Name: "b", State: Waiting}}, one, ""},
		"over limit": {"The limit was lowered.", []Candidate{{Name: "a", State: Moving}, {Name: "b", State: Moving}, {Name: "c", State: Waiting}}, one, ""},
		"room for one": {
			"One of two slots is free.", []Candidate{{Name: "a", State: Moving}, {Name: "b", State: Waiting}, {Name: "c", State: Waiting}}, two, "b",
		},
		"blocked for long": {
			"A move that does not go on holds up no other one.", []Candidate{{Name: "a", State: Moving, BlockedSince: longAgo}, {Name: "b", State: Waiting}}, one, "b",
		},
		"blocked lately": {"It may go on soon.", []Candidate{{Name: "a", State: Moving, BlockedSince: lately}, {Name: "b", State: Waiting}}, one, ""},
		"too many are blocked": {
			"A cluster that takes nothing does not get all objects at once.",
			[]Candidate{
				{Name: "a", State: Moving, BlockedSince: longAgo}, {Name: "b", State: Moving, BlockedSince: longAgo},
				{Name: "c", State: Moving}, {Name: "d", State: Waiting},
			}, one, "",
		},
		"all slots are blocked": {
			"Objects that do not start elsewhere do not end the drain.",
			[]Candidate{
				{Name: "a", State: Moving, BlockedSince: longAgo}, {Name: "b", State: Moving, BlockedSince: longAgo},
				{Name: "c", State: Waiting}, {Name: "d", State: Waiting},
			}, one, "c",
		},
		"other namespace": {
			"A namespace whose objects do not start elsewhere comes last, whatever their priority is.",
			[]Candidate{
				{Name: "a", Namespace: "x", State: Moving, BlockedSince: longAgo}, {Name: "b", Namespace: "x", State: Moving},
				{Name: "c", Namespace: "x", State: Waiting, Priority: math.MaxInt32}, {Name: "d", Namespace: "y", State: Waiting},
			}, two, "d",
		},
		"same namespace": {
			"One blocked move of many does not put a namespace last.",
			[]Candidate{
				{Name: "a", Namespace: "x", State: Moving, BlockedSince: longAgo}, {Name: "b", Namespace: "x", State: Moving}, {Name: "e", Namespace: "x", State: Moving},
				{Name: "c", Namespace: "x", State: Waiting, Priority: 1}, {Name: "d", Namespace: "y", State: Waiting},
			}, Limits{MaxConcurrentMoves: 3}, "c",
		},
		"unknown priority": {"Another object may be more important.", []Candidate{{Name: "a"}, {Name: "b", State: Waiting}}, Limits{MaxConcurrentMoves: 1, AwaitUnknown: true}, ""},
		"unknown for long": {"An object that cannot be read holds up no other one.", []Candidate{{Name: "a"}, {Name: "b", State: Waiting}}, one, "b"},
		"unknown dependency": {
			"A dependency has no place in the queue.",
			[]Candidate{{Name: "a", IsDependency: true}, {Name: "b", State: Waiting}}, Limits{MaxConcurrentMoves: 1, AwaitUnknown: true}, "b",
		},
		"with its dependency": {
			"A dependency needs no slot.",
			[]Candidate{{Name: "a", State: Waiting, DependsOn: []string{"c"}}, {Name: "b", State: Waiting}, {Name: "c", State: Waiting, IsDependency: true}}, one, "a,c",
		},
		"dependency of a waiting one": {
			"It stays with the object that waits.",
			[]Candidate{{Name: "a", State: Moving}, {Name: "b", State: Waiting, DependsOn: []string{"c"}}, {Name: "c", State: Waiting, IsDependency: true}}, one, "",
		},
		"shared dependency": {
			"It stays with the last of its dependents.",
			[]Candidate{
				{Name: "a", State: Waiting, DependsOn: []string{"c"}}, {Name: "b", State: Waiting, DependsOn: []string{"c"}}, {Name: "c", State: Waiting, IsDependency: true},
			}, one, "a",
		},
		"its dependents have left": {"Nothing needs it there.", []Candidate{{Name: "a", State: Moving}, {Name: "c", State: Waiting, IsDependency: true}}, one, "c"},
		"dependencies move": {
			"They hold no slot.", []Candidate{{Name: "a", State: Moving, IsDependency: true}, {Name: "b", State: Waiting}}, one, "b",
		},
		"retry": {
			"There may be room now.", []Candidate{{Name: "a", State: Staying, TriedAt: now.Add(-RetryInterval)}}, one, "a",
		},
		"tried lately":  {"It is not tried all the time.", []Candidate{{Name: "a", State: Staying, TriedAt: now.Add(time.Second - RetryInterval)}}, one, ""},
		"never retried": {"What must stay stays.", []Candidate{{Name: "a", State: Staying}}, one, ""},
		"retry comes last": {
			"An object with a place goes first, whatever its priority.",
			[]Candidate{{Name: "a", State: Staying, Priority: 9, TriedAt: now.Add(-RetryInterval)}, {Name: "b", State: Waiting}}, one, "b",
		},
		"retry in turns": {
			"Each one is tried.",
			[]Candidate{{Name: "a", State: Staying, Priority: 9, TriedAt: now.Add(-RetryInterval)}, {Name: "b", State: Staying, TriedAt: now.Add(-time.Hour)}}, one, "b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Next(tc.candidates, tc.limits, now)
			slices.Sort(got)
			if text := strings.Join(got, ","); text != tc.want {
				t.Errorf("%s\ngot %q, want %q", tc.reason, text, tc.want)
			}
		})
	}
}
