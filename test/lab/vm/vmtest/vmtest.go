// SPDX-License-Identifier: Apache-2.0

// Package vmtest tests the command lines of programs that run a guest's kernel.
package vmtest

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/test/lab/guest"
	"github.com/patchbay-cni/patchbay/test/lab/vm"
)

// Plain is a guest without devices.
func Plain(dir string) vm.Config { return vm.Config{Dir: dir, Memory: 512} }

// Full is a guest with an output, folders, disks, and a card that is connected to the tap t0.
func Full(dir string) vm.Config {
	c := Plain(dir)
	c.Output = os.Stdout
	c.Visible = []string{"/tmp/clone", "/usr/src"}
	c.Disks = []string{"/var/a", "/var/b"}
	c.Cards = []vm.Card{{Card: guest.Card{Name: "ens3", MAC: "02:00:00:00:00:01"}, Tap: "t0"}}
	return c
}

// ArgsCase is what the command line of a guest must have.
type ArgsCase struct {
	Reason string
	Config vm.Config
	// Has are arguments. No argument begins with one of HasNot.
	Has, HasNot []string
}

// CheckArgs compares command lines with what they must have.
func CheckArgs(t *testing.T, args func(vm.Config) []string, cases map[string]ArgsCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := args(tc.Config)
			for _, want := range tc.Has {
				if !slices.Contains(args, want) {
					t.Errorf("%s: %q is missing in %q", tc.Reason, want, args)
				}
			}
			for _, bad := range tc.HasNot {
				if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, bad) }) {
					t.Errorf("%s: %q is in %q", tc.Reason, bad, args)
				}
			}
		})
	}
}
