// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Verb is the first argument of a program that runs inside a guest.
const Verb = "guest"

// workerArg is the second argument of the process that does the work.
const workerArg = "work"

// searchPath is where the worker finds programs that are given without a path.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Inside tells whether the arguments (without the program's name) are those of a
// guest, and so for Main.
func Inside(args []string) bool { return len(args) >= 2 && args[0] == Verb }

// Main runs a guest. As process 1 it starts the worker, reaps orphans until that
// ends, and switches the machine off: it never returns.
func Main(args []string) error {
	if len(args) == 3 && args[1] == workerArg {
		return setUpAndRun(args[2])
	}
	if os.Getpid() != 1 {
		return errors.New("run guest: this is not process 1")
	}
	if err := supervise(args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
	}
	unix.Sync()
	return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// supervise keeps process 1 to what only it can do. The worker waits for its own
// children, so the two never take each other's.
func supervise(path string) error {
	if err := (Mount{Source: "proc", Target: "/proc", Type: "proc"}).mount(); err != nil {
		return err
	}
	spec, err := load(path)
	if err != nil {
		return err
	}
	if err := spec.setTimerSlack(); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", Verb, workerArg, path)
	cmd.Env = append(os.Environ(), "PATH="+searchPath)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start worker: %w", err)
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for worker: %w", err)
		case pid == cmd.Process.Pid && status.ExitStatus() != 0:
			return fmt.Errorf("worker ended with status %#x", uint32(status))
		case pid == cmd.Process.Pid:
			return nil
		}
	}
}

// setTimerSlack sets it for all programs that this thread starts.
func (s Spec) setTimerSlack() error {
	if s.TimerSlack == 0 {
		return nil
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(s.TimerSlack.Nanoseconds()), 0, 0, 0); err != nil {
		return fmt.Errorf("set timer slack to %s: %w", s.TimerSlack, err)
	}
	return nil
}
