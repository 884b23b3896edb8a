// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadEvents(t *testing.T) {
	t.Parallel()
	const events = `{"Action":"run","Package":"a/b","Test":"TestX"}
{"Action":"output","Package":"a/b","Test":"TestX","Output":"ok  \tfaked\t(cached)\n"}
{"Action":"pass","Package":"a/b","Test":"TestX/Y","Elapsed":0.5}
{"Action":"fail","Package":"a/b","Test":"TestX","Elapsed":61.25}
{"Action":"skip","Package":"a/b","Test":"TestZ","Elapsed":0}
{"Action":"output","Package":"a/c","Output":"ok  \ta/c\t(cached)\n"}
{"Action":"pass","Package":"a/c","Elapsed":0}
`
	tests, cached, err := readEvents(strings.NewReader(events))
	if err != nil || cached != 1 {
		t.Errorf("got %d cached packages (error: %v), want 1: a test's own output is none", cached, err)
	}
	want := []test{
		{"a/b", "TestX/Y", "pass", 500 * time.Millisecond},
		{"a/b", "TestX", "fail", 61250 * time.Millisecond},
		{"a/b", "TestZ", "skip", 0},
	}
	if diff := cmp.Diff(want, tests, cmp.AllowUnexported(test{})); diff != "" {
		t.Error(diff)
	}
	if _, _, err := readEvents(strings.NewReader("FAIL\ta/b [build failed]")); err == nil {
		t.Error("what is no event was taken for one")
	}
}

// A target that was ended, one that failed and one that never began are all distinguished from one
// that passed, and each makes the report fail.
func TestStates(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, seconds, events, want string
	}{
		"Passed":  {reason: "Exit code 0 is success.", seconds: "12 0 command 0m9.000s 0m1.000s\n", want: statePassed},
		"Tests":   {reason: "So it is with a test that passed.", seconds: "12 0 tests 0m9.000s 0m1.000s\n", events: `{"Action":"pass","Package":"a","Test":"TestX"}`, want: statePassed},
		"Failed":  {reason: "Any other code is not.", seconds: "12 2 command 0m9.000s 0m1.000s\n", want: stateFailed},
		"Test":    {reason: "A failed test counts, whatever the exit code.", seconds: "12 0 tests 0m9.000s 0m1.000s\n", events: `{"Action":"fail","Package":"a","Test":"TestX"}`, want: stateFailed},
		"Skipped": {reason: "Tests that were all skipped prove nothing.", seconds: "12 0 tests 0m9.000s 0m1.000s\n", events: `{"Action":"skip","Package":"a","Test":"TestX"}`, want: stateNoTest},
		"NoFile":  {reason: "A target of go test without its tests' events is no success.", seconds: "12 0 tests 0m9.000s 0m1.000s\n", want: stateNoTest},
		"Cut":     {reason: "Events that end in the middle are reported, and the table is printed.", seconds: "12 0 tests 0m9.000s 0m1.000s\n", events: `{"Action":"pass","Pack`, want: stateUnreadable},
		"NotRun":  {reason: "Without a record the target did not get to its end.", want: stateNotRun},
		"NoTest":  {reason: "A pattern that matches nothing is no success.", seconds: "3 0 tests 0m9.000s 0m1.000s\n", events: `{"Action":"pass","Package":"a/b"}`, want: stateNoTest},
		"Former":  {reason: "A record without times is of an earlier version of scripts/target.", seconds: "12 0 command\n", want: stateUnreadable},
		"Garbage": {reason: "A record must be two numbers, a word and two times.", seconds: "x", want: stateUnreadable},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if tc.seconds != "" {
				if err := os.WriteFile(filepath.Join(dir, "unit.seconds"), []byte(tc.seconds), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tc.events != "" {
				if err := os.WriteFile(filepath.Join(dir, "unit.json"), []byte(tc.events), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := readTarget(dir, "unit"); got.state() != tc.want {
				t.Errorf("%s\ngot %s (error: %v), want %q", tc.reason, got.state(), got.readError, tc.want)
			}
			reasons := filepath.Join(dir, "reasons")
			if err := os.WriteFile(reasons, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := run(io.Discard, dir, reasons, []string{"unit"}); (err == nil) != (tc.want == statePassed) {
				t.Errorf("%s\nrun: got %v", tc.reason, err)
			}
		})
	}
}

// scripts/target counts the time of programs below the command, and that of a command that fails.
func TestTargetCountsProcessorTime(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("../target")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	path := filepath.Join(folder, "scripts", "target")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, script, 0o700); err != nil {
		t.Fatal(err)
	}
	const loop = `bash -c 'for ((i = 0; i < 100000; i++)); do :; done'; exit 3`
	out, err := exec.CommandContext(t.Context(), path, "loop", "bash", "-c", loop).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 3 {
		t.Fatalf("scripts/target: got %v, want the exit code 3 of the command\n%s", err, out)
	}
	got := readTarget(filepath.Join(folder, "bin", "test"), "loop")
	if got.readError != nil || got.code != 3 || got.processor < 10*time.Millisecond {
		t.Errorf("got exit code %d, %v on processors and error %v, want 3 and at least 10ms", got.code, got.processor, got.readError)
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	var tests []test
	for i := range 12 {
		tests = append(tests, test{pkg: "x/y", name: fmt.Sprintf("Test%d", i), outcome: "pass", duration: time.Duration(i) * 6 * time.Second})
	}
	tests = append(tests, test{pkg: "x/y", name: "Test11/Sub", outcome: "skip", duration: time.Hour})
	var out strings.Builder
	targets := []*target{{name: "lint", hasRecords: true, duration: time.Minute, processor: 90 * time.Second}, {name: "unit", hasRecords: true, code: 1, cached: 3, tests: tests}}
	if err := write(&out, targets, map[string]string{"y.Test11": "It waits for a lease."}); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	for _, want := range []string{"66.0s  It waits for a lease.", "y.Test2", "12 passed, 0 failed, 1 skipped\n", "failed  13", "3 packages", "1m0s  1m30s\n", "SKIPPED TESTS\ny.Test11/Sub\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	for _, bad := range []string{"y.Test1 ", "Sub  ", "no reason"} {
		if strings.Contains(got, bad) {
			t.Errorf("%q is in\n%s", bad, got)
		}
	}
}

// The reasons of this repository can be read, and each names a test that exists.
func TestReasonsNameTests(t *testing.T) {
	t.Parallel()
	reasons, err := readReasons("../../test/slow-tests.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := ""
	err = filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if d != nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "bin") {
			return filepath.SkipDir // they change while other tests run
		}
		if err == nil && strings.HasSuffix(path, "_test.go") {
			raw, err := os.ReadFile(path)
			all += string(raw)
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range reasons {
		_, test, _ := strings.Cut(name, ".")
		if !strings.Contains(all, "\nfunc "+test+"(t *testing.T)") {
			t.Errorf("test/slow-tests.txt: %s is no test", name)
		}
	}
}
