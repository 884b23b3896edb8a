// SPDX-License-Identifier: Apache-2.0

package works

import (
	"errors"
	"testing"
	"time"
)

func TestUnreportedChanges(t *testing.T) {
	t.Parallel()
	const unknown = -1
	failure := errors.New("the cluster's API server answers with 500")
	type step func(u *unreportedChanges)
	add := func(u *unreportedChanges) { u.add("web") }
	begin := func(u *unreportedChanges) { u.begin("web") }
	sent := func(u *unreportedChanges) { u.report("web", true) }
	postponed := func(u *unreportedChanges) { u.report("web", false) }
	end := func(u *unreportedChanges) { u.end("web", nil) }
	fail := func(u *unreportedChanges) { u.end("web", failure) }
	missed := func(u *unreportedChanges) { u.addMissed("web") }
	for name, tc := range map[string]struct {
		reason string
		steps  []step // a second apart
		want   int    // seconds after the last step
	}{
		"nothing":               {"an agent that has seen no change has reported all", nil, 0},
		"not reconciled":        {"a change counts from the moment on which its event comes", []step{add}, 1},
		"again":                 {"the oldest change counts", []step{add, add}, 2},
		"in progress":           {"a report that is under way is not stored yet", []step{add, begin, sent}, 3},
		"reported":              {"a stored report has the change", []step{add, begin, sent, end}, 0},
		"nothing to report":     {"a Work that the hub does not have needs no report", []step{add, begin, end}, 0},
		"changed meanwhile":     {"the object was read before the second change", []step{add, begin, add, sent, end}, 3},
		"changed twice":         {"the first change that the report may lack counts", []step{add, begin, add, add, sent, end}, 4},
		"postponed":             {"the hub lacks a report that comes later", []step{add, begin, postponed, end}, 4},
		"postponed unasked":     {"the state differs from the report although no event came", []step{begin, postponed, end}, 3},
		"failed before":         {"the reconciliation did not come to its report", []step{add, begin, fail}, 3},
		"failed after":          {"an error that is reported delays no other Work", []step{add, begin, sent, fail}, 0},
		"one of two failed":     {"the last report of the reconciliation is not stored", []step{add, begin, sent, postponed, end}, 5},
		"missed":                {"what an agent missed has no date", []step{missed}, unknown},
		"missed and changed":    {"the missed change may be older", []step{missed, add, begin, postponed, end}, unknown},
		"missed, then reported": {"the object was read again", []step{missed, begin, sent, end}, 0},
		"missed meanwhile":      {"the object may have been read before", []step{add, begin, missed, sent, end}, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(0, 0)
			u := newUnreportedChanges(func() time.Time { return now })
			for _, step := range tc.steps {
				step(u)
				now = now.Add(time.Second)
			}
			got, known := u.age()
			if want := time.Duration(tc.want) * time.Second; tc.want != unknown && got != want || known != (tc.want != unknown) {
				t.Errorf("%s: got %s, known %t, want %d seconds", tc.reason, got, known, tc.want)
			}
		})
	}
}

// The agent keeps nothing of Works that have no change.
func TestUnreportedChangesForget(t *testing.T) {
	t.Parallel()
	u := newUnreportedChanges(time.Now)
	u.add("web")
	u.begin("web")
	if got := u.works(); len(got) != 1 {
		t.Errorf("got %q before the report, want web", got)
	}
	u.end("web", nil)
	if got := u.works(); len(got) != 0 {
		t.Errorf("got %q after the report, want none", got)
	}
}
