// SPDX-License-Identifier: Apache-2.0

package uml

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestArgs(t *testing.T) {
	t.Parallel()
	plain := Config{Kernel: Kernel{Program: "/bin/linux", Options: []string{"seccomp=on"}}, Dir: "/run/x", Memory: 512}
	full := plain
	full.Output = os.Stdout
	full.Disks = []string{"/var/a", "/var/b"}
	full.Taps = []Tap{{Name: "t0", MAC: "02:00:00:00:00:01"}}
	cases := map[string]struct {
		reason      string
		config      Config
		has, hasNot []string
	}{
		"Plain": {
			reason: "The root is read-only, and the guest's folder is on the command line.",
			config: plain,
			has:    []string{"ro", "rootfstype=hostfs", "uml_dir=/run/x/", "mem=512M", "panic=-1", "init=/run/x/init", "seccomp=on"},
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
			args := tc.config.args()
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

// The guest has its own file systems in /tmp and /run, so what it needs from there
// must be brought back; everything else is visible as it is.
func TestVisible(t *testing.T) {
	t.Parallel()
	c := Config{Dir: "/tmp/guest", Visible: []string{"/tmp/clone", "/run/images", "/usr/src", "/tmpfoo"}}
	var got []string
	for _, m := range c.baseMounts() {
		if m.Type == "hostfs" {
			got = append(got, m.Data+" on "+m.Target)
		}
	}
	want := []string{"/tmp/guest on " + GuestDir, "/tmp/clone on /tmp/clone", "/run/images on /run/images"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Only the kernel of the guest in question counts as its process.
func TestBelongsToGuest(t *testing.T) {
	t.Parallel()
	if belongsToGuest(os.Getpid(), "/run/x") || belongsToGuest(1, "/run/x") || belongsToGuest(-1, "/run/x") {
		t.Error("a process that is no guest belongs to one")
	}
	got, err := Processes("/run/no/such/guest")
	if err != nil || len(got) > 0 {
		t.Errorf("Processes: got %v, %v", got, err)
	}
}
