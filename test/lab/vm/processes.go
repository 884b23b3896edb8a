// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Mark is an argument that the programs which run the kernel of the guest in dir have, and no
// other program has.
func Mark(dir string) string { return "guest=" + dir }

// Kill ends a guest as a power cut does, and returns when none of its processes is
// left. No guest is fine.
func Kill(ctx context.Context, dir string) error {
	const pause = 5 * time.Millisecond
	for {
		pids, err := Processes(dir)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := kill(ctx, pid, dir); err != nil {
				return err
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("kill guest in %s: %w", dir, ctx.Err())
		}
	}
}

// kill opens a pidfd first and then checks the owner again, so that a reused number is
// never killed. It returns when the process is gone: a process that ends loses its command line
// first, and its files, with the lock on the guest's disk, only after all of its memory.
func kill(ctx context.Context, pid int, dir string) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil // nobody has the number, or a thread of another process
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if !belongsToGuest(pid, dir) {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	const turnMillis = 50 // how late a cancelled context may be noticed
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, turnMillis)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process %d: %w", pid, err)
		}
		if n > 0 {
			return nil
		}
	}
	return fmt.Errorf("wait for process %d: %w", pid, ctx.Err())
}

// Processes lists the processes of the guest in dir that still run. Those of User-Mode Linux
// are its kernel and helper threads, which have the kernel's command line. So have the guest's
// user processes in ptrace mode; in seccomp mode they end with the kernel, which is their
// parent, a moment later. QEMU is one process.
func Processes(dir string) ([]int, error) {
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(filepath.Base(e))
		if err == nil && belongsToGuest(pid, dir) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
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
