// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// target is one line of the table.
type target struct {
	name string
	// hasRecords is false when the target did not get to its end.
	hasRecords bool
	// code is the exit code.
	code     int
	duration time.Duration
	// processor is the time that its programs spent on processors, in sum.
	processor time.Duration
	tests     []test
	// runsTests is true for a target of go test.
	runsTests bool
	// readError is the error of reading its records.
	readError error
	// cached counts packages whose result go test had from an earlier run.
	cached int
}

// test is one test function, or a subtest.
type test struct {
	pkg, name string
	// outcome is "pass", "fail" or "skip".
	outcome  string
	duration time.Duration
}

func (t test) isSubtest() bool { return strings.Contains(t.name, "/") }

func (t test) isSkipped() bool { return t.outcome == "skip" }

// States of a target. All but the first make the report fail.
const (
	statePassed     = "passed"
	stateFailed     = "failed"
	stateNotRun     = "not run"
	stateNoTest     = "ran no test"
	stateUnreadable = "unreadable"
)

func (t *target) state() string {
	switch {
	case t.readError != nil:
		return stateUnreadable
	case !t.hasRecords:
		return stateNotRun
	case t.code != 0 || t.count("fail") > 0:
		return stateFailed
	case t.runsTests && t.count("pass") == 0: // a pattern or a build tag matches nothing
		return stateNoTest
	default:
		return statePassed
	}
}

// count returns how many tests of the target had the outcome.
func (t *target) count(outcome string) int {
	n := 0
	for _, test := range t.tests {
		if test.outcome == outcome {
			n++
		}
	}
	return n
}

// readTarget reads the records of one target. None are a target that did not run.
func readTarget(records, name string) *target {
	t := &target{name: name}
	t.readError = errors.Join(t.readResult(records), t.readTests(records))
	return t
}

// readResult reads what scripts/target wrote: seconds, exit code, "tests" for a target of go test, and the times
// on processors in user and in system mode.
func (t *target) readResult(records string) error {
	file := filepath.Join(records, t.name+".seconds")
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read record of target %s: %w", t.name, err)
	}
	var seconds int
	var kind, user, system string
	_, err = fmt.Sscan(string(raw), &seconds, &t.code, &kind, &user, &system)
	inUser, userErr := time.ParseDuration(user)
	inSystem, systemErr := time.ParseDuration(system)
	if errors.Join(err, userErr, systemErr) != nil {
		return fmt.Errorf("%s must have seconds, exit code, kind and two times such as 0m1.5s, got %q: run make test-%s again", file, raw, t.name)
	}
	t.hasRecords, t.runsTests = true, kind == kindTests
	t.duration, t.processor = time.Duration(seconds)*time.Second, inUser+inSystem
	return nil
}

// kindTests marks a target of go test; scripts/gotest asks for it.
const kindTests = "tests"

func (t *target) readTests(records string) error {
	f, err := os.Open(filepath.Join(records, t.name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read tests of target %s: %w", t.name, err)
	}
	defer f.Close()
	if t.tests, t.cached, err = readEvents(f); err != nil {
		return fmt.Errorf("read tests of target %s: %w", t.name, err)
	}
	return nil
}

// event is a line that go test -json prints, see `go doc test2json`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// readEvents collects tests that ended, and counts packages from go test's cache.
func readEvents(r io.Reader) (tests []test, cached int, err error) {
	for d := json.NewDecoder(r); ; {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return tests, cached, nil
		} else if err != nil {
			return tests, cached, fmt.Errorf("decode test event: %w", err)
		}
		switch e.Action {
		case "pass", "fail", "skip":
			if e.Test != "" {
				took := time.Duration(e.Elapsed * float64(time.Second))
				tests = append(tests, test{pkg: e.Package, name: e.Test, outcome: e.Action, duration: took})
			}
		case "output":
			if e.Test == "" && strings.HasPrefix(e.Output, "ok ") && strings.HasSuffix(e.Output, "(cached)\n") {
				cached++
			}
		}
	}
}

// readReasons reads lines of a package's last folder, a dot and a test, and the reason why
// it takes more than a minute. Empty lines and lines with # are comments.
func readReasons(file string) (map[string]string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read reasons: %w", err)
	}
	reasons := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, found := strings.Cut(line, " ")
		if !found {
			return nil, fmt.Errorf("parse %s: line %q must have a test and a reason", file, line)
		}
		reasons[name] = strings.TrimSpace(reason)
	}
	return reasons, nil
}
