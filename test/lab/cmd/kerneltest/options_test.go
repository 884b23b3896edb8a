// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	bin, err := executableDir()
	if err != nil {
		t.Fatal(err)
	}
	defaults := options{kernel: kernelUML, timeout: 15 * time.Minute, memory: 1024, bin: bin, env: passedVariables}
	cases := map[string]struct {
		reason string
		args   []string
		want   func(*options)
		fails  bool
	}{
		"Plain": {
			reason: "Everything after the program is the program's.",
			args:   []string{"/bin/sh", "-c", "-timeout"},
			want:   func(o *options) { o.args = []string{"-c", "-timeout"} },
		},
		"FromGoTest": {
			reason: "The guest cannot write the machine's file for go test's cache.",
			args:   []string{"-memory=99", "/bin/sh", "-test.v", "-test.testlogfile=/tmp/x", "--test.testlogfile=/tmp/x", "-test.run=X"},
			want: func(o *options) {
				o.memory = 99
				o.args = []string{"-test.v", "-test.run=X"}
			},
		},
		"QEMU": {
			reason: "The kind of kernel is a choice of the caller's.",
			args:   []string{"--kernel", "qemu", "/bin/sh"},
			want: func(o *options) {
				o.kernel = kernelQEMU
				o.args = []string{}
			},
		},
		"BadKernel": {reason: "A misspelt kind is refused.", args: []string{"-kernel", "kvm", "/bin/sh"}, fails: true},
		"Nothing":   {reason: "There must be a program.", args: []string{"-timeout", "1s"}, fails: true},
		"NoProgram": {reason: "It must exist.", args: []string{"/nowhere/program"}, fails: true},
		"BadFlag":   {reason: "Unknown flags before the program are refused.", args: []string{"-x", "/bin/sh"}, fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(tc.args)
			if (err != nil) != tc.fails {
				t.Fatalf("%s\nparse: got %v, want error: %t", tc.reason, err, tc.fails)
			}
			if tc.fails {
				return
			}
			want := defaults
			want.program = "/bin/sh"
			tc.want(&want)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{})); diff != "" {
				t.Errorf("%s\n%s", tc.reason, diff)
			}
		})
	}
}
