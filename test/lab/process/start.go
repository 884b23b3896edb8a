// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Spec says what to run.
type Spec struct {
	// Args are the program and its arguments.
	Args []string
	// Dir is the working folder.
	Dir string
	// Env is added to the caller's environment.
	Env []string
	// Log is the file to which output is appended; empty means /dev/null.
	Log string
	// Files are inherited, as descriptors 3 and up.
	Files []*os.File
	// Netns is the named network namespace to run in; empty means the caller's.
	Netns string
	// Nice is the scheduling priority as of nice(1), of the process and of its session: where the
	// kernel groups tasks by session (autogroup, sched(7)), only that of the session matters
	// beside other sessions. A machine that does not permit it leaves it at 0.
	Nice int
	// DieWithParent makes the kernel kill the process when the caller ends, however it
	// ends. Otherwise the process lives on, in a session of its own.
	DieWithParent bool
}

// Start runs the program and returns as soon as it exists. It reaps the process
// for as long as the caller lives.
func Start(spec Spec) (ID, error) {
	log, err := openLog(spec.Log)
	if err != nil {
		return ID{}, err
	}
	defer log.Close()

	cmd := spec.command()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = spec.Files

	type outcome struct {
		id  ID
		err error
	}
	started := make(chan outcome)
	go func() {
		// The death signal follows the thread that forked, not its process, so
		// that thread stays until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- outcome{err: fmt.Errorf("start %s: %w", spec.Args[0], err)}
			return
		}
		spec.setNice(cmd.Process.Pid)
		id, err := Of(cmd.Process.Pid)
		started <- outcome{id, err}
		_ = cmd.Wait() // reaping is all that is wanted; how it ended stands in the log
	}()
	o := <-started
	return o.id, o.err
}

func (s Spec) command() *exec.Cmd {
	args := s.Args
	if s.Netns != "" {
		// Unlike "ip netns exec" this leaves the mounts alone.
		args = append([]string{"nsenter", "--net=/run/netns/" + s.Netns, "--"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if s.DieWithParent {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	return cmd
}

// setNice sets the priority of a new process, which has no children yet. It is for speed only, so
// failures are ignored.
func (s Spec) setNice(pid int) {
	if s.Nice == 0 {
		return
	}
	_ = unix.Setpriority(unix.PRIO_PROCESS, pid, s.Nice)
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(s.Nice)), 0)
}

func openLog(path string) (*os.File, error) {
	if path == "" {
		path = os.DevNull
	}
	log, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return log, nil
}
