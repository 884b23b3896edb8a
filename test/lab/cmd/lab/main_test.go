// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The names of commands are used in documents and scripts.
func TestCommands(t *testing.T) {
	t.Parallel()
	root := newRoot()
	want := "up --nodes --install --qemu --runtime,down,status,kubectl,exec,node add --kind --runtime,node cut,node heal,node kill,node start,restart,logs,demo"
	for line := range strings.SplitSeq(want, ",") {
		words := strings.Fields(line)
		flags := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !strings.HasPrefix(w, "--") })
		words = words[:len(words)-len(flags)]
		cmd, _, err := root.Find(words)
		if err != nil || cmd.Name() != words[len(words)-1] {
			t.Errorf("lab %s: not found (%v)", line, err)
			continue
		}
		for _, f := range flags {
			if cmd.Flag(strings.TrimPrefix(f, "--")) == nil {
				t.Errorf("lab %s: no flag %s", line, f)
			}
		}
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{
		"help":                                 0,
		"status --name no-such-lab":            1,
		"--name no-such-lab kubectl get nodes": 1,
		"exec --name no-such-lab node-1 true":  1,
		"node kill":                            1,
		"nothing":                              1,
		"down --name ../etc":                   1,
	} {
		if got := run(t.Context(), strings.Fields(line)); got != want {
			t.Errorf("lab %s: got exit code %d, want %d", line, got, want)
		}
	}
}

func TestCodeOf(t *testing.T) {
	t.Parallel()
	var code exitError
	if err := exitCode(exec.Command("sh", "-c", "exit 6").Run()); !errors.As(err, &code) || code != 6 {
		t.Errorf("codeOf: got %v, want exit code 6", err)
	}
	plain := errors.New("x")
	if got := exitCode(plain); !errors.Is(got, plain) || errors.As(got, &code) {
		t.Errorf("codeOf(%q): got %v, want it as it was", plain, got)
	}
	if exitCode(nil) != nil {
		t.Error("codeOf(nil) is an error")
	}
}

func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ reason, line, want string }{
		"Near": {"One letter is missing.", "statu", `unknown command "statu" for "lab": did you mean status?`},
		"Two":  {"Two letters are exchanged.", "dwon", `unknown command "dwon" for "lab": did you mean down?`},
		"Far":  {"No command has a name like this.", "foo", `unknown command "foo" for "lab": see lab --help`},
		"Flag": {"The flag is the lab's.", "--name dev exce node-1 true", `unknown command "exce" for "lab": did you mean exec?`},
		"Node": {"The commands on nodes have a level of their own.", "node kil node-1", `unknown command "kil" for "lab node": did you mean kill?`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := newRoot()
			root.SetArgs(strings.Fields(tc.line))
			if err := root.ExecuteContext(t.Context()); !errors.Is(err, errUnknownCommand) || err.Error() != tc.want {
				t.Errorf("%s lab %s: got %v, want %s", tc.reason, tc.line, err, tc.want)
			}
		})
	}
}

// A hint that is pasted must be for the lab that it was printed for.
func TestHintsNameTheLab(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ reason, lab, want string }{
		"default": {"the default needs no flag", "demo", "  bin/lab kubectl get clusternetworks "},
		"other":   {"without its name the commands would be for another lab", "dev", "  bin/lab --name dev kubectl get clusternetworks "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			if err := printNextSteps(&out, tc.lab); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), tc.want) {
				t.Errorf("%s: got\n%s\nwant a line with %q", tc.reason, out.String(), tc.want)
			}
		})
	}
}
