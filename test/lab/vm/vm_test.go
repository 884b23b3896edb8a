// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/test/lab/guest"
)

// The guest has its own file systems in /tmp and /run, so what it needs from there
// must be brought back; everything else is visible as it is.
func TestVisible(t *testing.T) {
	t.Parallel()
	c := Config{Dir: "/tmp/guest", Visible: []string{"/tmp/clone", "/run/images", "/usr/src", "/tmpfoo"}}
	var got []string
	mount := func(n int, s Share) guest.Mount {
		return guest.Mount{Source: s.Dir, Target: s.Target, Type: "share", Data: strconv.Itoa(n)}
	}
	for _, m := range c.baseMounts(mount) {
		if m.Type == "share" {
			got = append(got, m.Data+": "+m.Source+" on "+m.Target)
		}
	}
	want := []string{"0: /tmp/guest on " + GuestDir, "1: /tmp/clone on /tmp/clone", "2: /run/images on /run/images"}
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

// A guest is found by its folder, and killed whatever runs it.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", "read line", Mark(dir))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if got, err := Processes(dir); err != nil || len(got) != 1 || got[0].PID != cmd.Process.Pid {
		t.Errorf("Processes: got %v, %v; want %d", got, err, cmd.Process.Pid)
	}
	for range 2 { // no guest is fine
		if err := Kill(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; err == nil {
		t.Error("the process ended by itself")
	}
}
