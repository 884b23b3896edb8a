// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestSpecSurvivesItsFile(t *testing.T) {
	t.Parallel()
	want := Spec{
		Hostname: "x", ModuleRoot: "/m", Modules: []string{"dummy"},
		Mounts: []Mount{{Source: "a", Target: "b", Type: "bind", ReadOnly: true, Folders: []string{"c"}}},
		Cards:  []Card{{Name: "ens3", MAC: "02:00:00:00:00:01"}},
		Env:    []string{"A=b"}, TimerSlack: time.Millisecond, Setup: [][]string{{"true"}},
		Run:      &Run{Args: []string{"x"}, Dir: "/", Output: "/dev/ttyS0", Result: "/r"},
		Agent:    &Agent{Card: "agent", Prefix: netip.MustParsePrefix("10.0.0.1/24"), Port: 9},
		Services: []Service{{Name: "s", Args: []string{"s"}, Socket: "/s", Log: "/l"}},
	}
	file := filepath.Join(t.TempDir(), "spec")
	if err := want.Save(file); err != nil {
		t.Fatal(err)
	}
	got, err := load(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file may hold secrets of the environment: mode %v (error: %v)", info.Mode(), err)
	}
}

func TestLoadRefusesBrokenSpec(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "spec")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("load: got %v, want an error that names the file", err)
	}
	if _, err := load(file + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("load: got %v, want not-exist", err)
	}
}

func TestInside(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]bool{
		"guest /spec": true, "guest work /spec": true,
		"guest": false, "": false, "up --name guest": false, "-test.v": false,
	} {
		if got := Inside(strings.Fields(words)); got != want {
			t.Errorf("Inside(%q): got %t", words, got)
		}
	}
}

// Only process 1 may switch a machine off: this test's machine must stay on.
func TestMainRefusesAnyOtherProcess(t *testing.T) {
	t.Parallel()
	if err := Main([]string{Verb, "/spec"}); err == nil {
		t.Error("Main ran outside of a guest")
	}
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
		want   Outcome
	}{
		"Success": {reason: "Zero is success.", args: []string{"true"}},
		"Code":    {reason: "A code is passed on.", args: []string{"sh", "-c", "exit 9"}, want: Outcome{Code: 9}},
		"Signal": {
			reason: "A signal is told as a shell does.",
			args:   []string{"sh", "-c", "kill -TERM $$"}, want: Outcome{Code: 143, Error: "signal: terminated"},
		},
		"NotThere": {
			reason: "Without a process there is no code.",
			args:   []string{"/nowhere"}, want: Outcome{Code: -1, Error: "fork/exec /nowhere: no such file or directory"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := outcomeOf(exec.Command(tc.args[0], tc.args[1:]...).Run())
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n%s", tc.reason, diff)
			}
			file := filepath.Join(t.TempDir(), "result")
			if err := got.save(file); err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var stored Outcome
			if err := json.Unmarshal(raw, &stored); err != nil || stored != got {
				t.Errorf("stored %s (error: %v)", raw, err)
			}
		})
	}
}

func TestFailedSetupNamesTheCommand(t *testing.T) {
	t.Parallel()
	err := command([]string{"sh", "-c", "echo why >&2; exit 1"}, nil)
	if err == nil || !strings.Contains(err.Error(), "run sh -c") || !strings.Contains(err.Error(), "why") {
		t.Errorf("command: got %v", err)
	}
}

// A service that ends is told about in its log, with what it printed.
func TestServiceLog(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	s := Service{Name: "s", Args: []string{"/nowhere/program"}, Log: log}
	if err := s.runOnce(nil); err == nil {
		t.Error("once: no error for a program that is not there")
	}
	s.logf("ended: %v", "why")
	raw, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(raw), " s: ended: why\n") {
		t.Errorf("log: got %q (error: %v)", raw, err)
	}
}
