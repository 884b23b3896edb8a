// SPDX-License-Identifier: Apache-2.0

package works

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// unreportedChanges dates the changes in the cluster that the agent has seen and not reported, by Work. The
// heartbeat says how old the oldest is. A change is in it before the agent reconciles its Work, and until the
// hub's API server has stored a report that was computed after it: a heartbeat that does not mention a change is
// stored after its report.
type unreportedChanges struct {
	now func() time.Time

	mu     sync.Mutex
	byWork map[string]*unreportedChange
}

// unreportedChange is what one Work does not report.
type unreportedChange struct {
	// since is when the agent saw the oldest change; zero: it may be older than that.
	since time.Time
	// started is when the reconciliation in progress began; zero: there is none.
	started time.Time
	// next is when the agent saw the first change after started; zero: there is none.
	next time.Time
	// dated is true when since is set.
	dated bool
	// reported and failed tell whether the reconciliation in progress has reported, or could not.
	reported, failed bool
}

func newUnreportedChanges(now func() time.Time) *unreportedChanges {
	return &unreportedChanges{now: now, byWork: map[string]*unreportedChange{}}
}

// add records that an object of a Work has changed.
func (u *unreportedChanges) add(work string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c, now := u.entry(work), u.now()
	if !c.started.IsZero() && c.next.IsZero() {
		c.next = now
	}
	if !c.dated {
		c.since, c.dated = now, true
	}
}

// addMissed records that the agent may have missed changes of a Work's objects.
func (u *unreportedChanges) addMissed(work string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := u.entry(work)
	c.since, c.dated = time.Time{}, true
	if !c.started.IsZero() {
		c.failed = true // it may have read the objects before
	}
}

func (u *unreportedChanges) entry(work string) *unreportedChange {
	c := u.byWork[work]
	if c == nil {
		c = &unreportedChange{}
		u.byWork[work] = c
	}
	return c
}

// begin records that the reconciliation of a Work begins: it reads the objects after this.
func (u *unreportedChanges) begin(work string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := u.entry(work)
	c.started, c.next, c.reported, c.failed = u.now(), time.Time{}, false, false
}

// report records whether the hub has the report of the reconciliation in progress.
func (u *unreportedChanges) report(work string, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c := u.byWork[work]; c != nil {
		c.reported, c.failed = c.reported || ok, c.failed || !ok
	}
}

// end records that the reconciliation of a Work has ended. One that fails after its report has reported the error.
func (u *unreportedChanges) end(work string, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := u.byWork[work]
	if c == nil {
		return
	}
	switch {
	case c.failed, err != nil && !c.reported:
		if !c.dated {
			c.since, c.dated = c.started, true
		}
	case c.next.IsZero():
		delete(u.byWork, work)
	default:
		c.since = c.next
	}
	c.started, c.next = time.Time{}, time.Time{}
}

// age returns the age of the oldest change; false when it is not known.
func (u *unreportedChanges) age() (time.Duration, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	oldest := time.Duration(0)
	for _, c := range u.byWork {
		switch {
		case c.dated && c.since.IsZero():
			return 0, false
		case c.dated:
			oldest = max(oldest, u.now().Sub(c.since))
		}
	}
	return oldest, true
}

// works returns the Works that have changes.
func (u *unreportedChanges) works() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Sorted(maps.Keys(u.byWork))
}
