// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// Mark is an argument that the programs which run the kernel of the guest in dir have, and no
// other program has.
func Mark(dir string) string { return "guest=" + dir }

// Kill ends a guest as a power cut does, and returns when none of its processes is
// left. No guest is fine.
func Kill(ctx context.Context, dir string) error {
	list := func() ([]process.ID, error) { return Processes(dir) }
	if err := process.KillAll(ctx, list); err != nil {
		return fmt.Errorf("kill guest in %s: %w", dir, err)
	}
	return nil
}

// Processes lists the processes of the guest in dir that still run. Those of User-Mode Linux
// are its kernel and helper threads, which have the kernel's command line. So have the guest's
// user processes in ptrace mode; in seccomp mode they end with the kernel, which is their
// parent, a moment later. QEMU is one process.
func Processes(dir string) ([]process.ID, error) {
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(filepath.Base(e)); err == nil {
			pids = append(pids, pid)
		}
	}
	// The command line is read after the time of start: if the number was reused in between, the
	// ID is that of a process which is gone.
	running, err := process.All(pids)
	return slices.DeleteFunc(running, func(id process.ID) bool { return !belongsToGuest(id.PID, dir) }), err
}

// belongsToGuest tells whether a process is part of a guest; one that ended has no command
// line and does not.
func belongsToGuest(pid int, dir string) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return false
	}
	for arg := range bytes.SplitSeq(raw, []byte{0}) {
		if string(arg) == Mark(dir) {
			return true
		}
	}
	return false
}
