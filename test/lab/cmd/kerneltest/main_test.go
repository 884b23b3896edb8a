// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/test/lab/guest"
	"github.com/patchbay-cni/patchbay/test/lab/uml"
	"github.com/patchbay-cni/patchbay/test/lab/vm"
)

// bin is the folder of the module's built programs.
const bin = "../../../../bin"

// TestMain makes the test binary the init of the guests that it boots.
func TestMain(m *testing.M) {
	if guest.Inside(os.Args[1:]) {
		if err := guest.Main(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestRun(t *testing.T) {
	t.Setenv("GOTRACEBACK", "all")
	t.Setenv("KERNELTEST_SECRET", "x")
	big := strings.Repeat("0123456789abcde\n", 20_000)
	// Not in t.TempDir: the module itself, which the guest sees, may lie in /tmp.
	file, err := os.CreateTemp("/tmp", "machines-own-")
	if err != nil {
		t.Fatal(err)
	}
	mark := file.Name()
	t.Cleanup(func() { os.Remove(mark) })
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		script string
		out    string
		code   int
	}{
		"Code": {
			reason: "The exit code is passed on.",
			script: "exit 7", code: 7,
		},
		"Signal": {
			reason: "A program that dies by a signal fails.",
			script: "kill -SEGV $$", code: 139,
		},
		"Output": {
			reason: "Much output comes through unchanged, in order, both streams.",
			script: `for i in 1 2 3; do echo "$i"; echo "error $i" >&2; done; yes 0123456789abcde | head -n 20000`,
			out:    "1\nerror 1\n2\nerror 2\n3\nerror 3\n" + big,
		},
		"Drivers": {
			reason: "The drivers that the machine may lack are there.",
			script: `set -e
				ip link add d0 type dummy
				ip link add link d0 name v type vlan id 500
				ip link add link v name i type ipvlan mode l2
				ip link add link d0 name m type macvlan mode bridge
				ip link add x type vxlan id 7 dstport 4789 dev d0
				ip link add r type vrf table 10
				echo all`,
			out: "all\n",
		},
		"Files": {
			reason: "The machine's files are there to read only; /tmp and /run are the guest's.",
			script: `cd; test -r /etc/passwd; touch /etc/x 2>/dev/null && echo writable; ls ` + mark + ` 2>/dev/null; touch /tmp/x /run/x; ip netns add a && ip netns`,
			out:    "a\n",
		},
		"Environment": {
			reason: "Only what is asked for is passed on.",
			script: `echo "$GOTRACEBACK-$KERNELTEST_SECRET"`,
			out:    "all-\n",
		},
		"Folder": {
			reason: "The caller's folder is the program's, and its module can be read.",
			script: `test -e main_test.go && test -e ../../../../go.mod && echo yes`,
			out:    "yes\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			code, err := run(t.Context(), []string{"-bin", bin, "-timeout", "10m", "-memory", "256", "-env", "GOTRACEBACK", "/bin/sh", "-c", tc.script}, &out)
			if err != nil {
				t.Fatalf("%s\nrun: %v", tc.reason, err)
			}
			if code != tc.code || out.String() != tc.out {
				t.Errorf("%s\ngot exit code %d, %d bytes of output: %.200q; want %d, %d bytes: %.200q",
					tc.reason, code, out.Len(), out.String(), tc.code, len(tc.out), tc.out)
			}
		})
	}
}

func TestDeadGuestFails(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, script string
		want           error
		message        string
	}{
		"Panic": {
			reason: "A kernel panic fails, and the console says why.",
			script: "echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger; sleep 60",
			want:   errDied, message: "Kernel panic",
		},
		"LostParent": {
			reason: "A guest whose worker was killed has no outcome.",
			script: "kill -KILL $PPID; sleep 60",
			want:   errDied, message: "worker ended",
		},
		"Hang": {
			reason: "A program that does not end is ended.",
			script: "sleep 3600",
			want:   context.DeadlineExceeded,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			timeout := "10m"
			if errors.Is(tc.want, context.DeadlineExceeded) {
				timeout = "8s"
			}
			_, err := run(t.Context(), []string{"-bin", bin, "-timeout", timeout, "-memory", "256", "/bin/sh", "-c", tc.script}, &bytes.Buffer{})
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.message) {
				t.Errorf("%s\nrun: got %v, want %v with %q", tc.reason, err, tc.want, tc.message)
			}
		})
	}
}

// What a killed run leaves is removed by the next, and only that.
func TestSweep(t *testing.T) {
	dir := filepath.Join(os.TempDir(), folderPrefix+"sweep-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := uml.FindKernel(bin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kernel.Boot(vm.Config{
		Dir: dir, Memory: 128, Init: self, DieWithParent: true,
		Spec: guest.Spec{Run: &guest.Run{Args: []string{"/bin/sleep", "3600"}, Output: "/dev/console"}},
	}); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(dir, lockFile)
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := removeStaleGuests(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatal("a folder that is new was removed")
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(lock, old, old); err != nil {
		t.Fatal(err)
	}
	if err := removeStaleGuests(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder is still there")
	}
	if left, err := vm.Processes(dir); err != nil || len(left) > 0 {
		t.Errorf("processes left: %v (error: %v)", left, err)
	}
}
