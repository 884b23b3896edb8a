// SPDX-License-Identifier: Apache-2.0

package uml

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/test/lab/guest"
	"github.com/patchbay-cni/patchbay/test/lab/vm"
)

func TestArgs(t *testing.T) {
	t.Parallel()
	kernel := Kernel{Program: "/bin/linux", Options: []string{"seccomp=on"}}
	plain := vm.Config{Dir: "/run/x", Memory: 512}
	full := plain
	full.Output = os.Stdout
	full.Disks = []string{"/var/a", "/var/b"}
	full.Cards = []vm.Card{{Card: guest.Card{MAC: "02:00:00:00:00:01"}, Tap: "t0"}}
	cases := map[string]struct {
		reason      string
		config      vm.Config
		has, hasNot []string
	}{
		"Plain": {
			reason: "The root is read-only, and the guest's folder is on the command line.",
			config: plain,
			has:    []string{"ro", "rootfstype=hostfs", "guest=/run/x", "uml_dir=/run/x/", "mem=512M", "panic=-1", "init=/run/x/init", "seccomp=on"},
			hasNot: []string{"ssl0=", "ubd0=", "vec0:"},
		},
		"Full": {
			reason: "Devices are numbered in the order given.",
			config: full,
			has: []string{
				"ssl0=null,fd:3", "ubd0=/var/a", "ubd1=/var/b",
				"vec0:transport=tap,ifname=t0,depth=64,gro=1,mac=02:00:00:00:00:01",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := kernel.args(tc.config)
			for _, want := range tc.has {
				if !slices.Contains(args, want) {
					t.Errorf("%s: %q is missing in %q", tc.reason, want, args)
				}
			}
			for _, bad := range tc.hasNot {
				if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, bad) }) {
					t.Errorf("%s: %q is in %q", tc.reason, bad, args)
				}
			}
			if tail := args[len(args)-3:]; !cmp.Equal(tail, []string{"--", "guest", "/run/x/guest.json"}) {
				t.Errorf("the last arguments are init's: got %q", tail)
			}
		})
	}
}
