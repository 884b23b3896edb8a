// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Run is a command that the guest exists for.
type Run struct {
	Args []string `json:"args"`
	// Dir is the working folder.
	Dir string `json:"dir,omitempty"`
	// Output is the device that output goes to, without any change of its bytes.
	Output string `json:"output"`
	// Result is the file that the outcome is written to as JSON, an Outcome.
	Result string `json:"result"`
}

// Outcome is how a Run ended.
type Outcome struct {
	// Code is the exit code; 128 and the signal's number for a process ended by one.
	Code int `json:"code"`
	// Error says why there is no exit code.
	Error string `json:"error,omitempty"`
}

// run executes the command and stores its outcome. Without an outcome, whoever
// booted the guest knows that the guest did not get this far.
func (r Run) run(env []string) error {
	out, err := openRawTerminal(r.Output)
	if err != nil {
		return err
	}
	cmd := exec.Command(r.Args[0], r.Args[1:]...)
	cmd.Dir, cmd.Env = r.Dir, env
	cmd.Stdout, cmd.Stderr = out, out
	outcome := outcomeOf(cmd.Run())
	if err := drainTerminal(out); err != nil {
		return err
	}
	return outcome.save(r.Result)
}

func outcomeOf(err error) Outcome {
	var exit *exec.ExitError
	if err == nil {
		return Outcome{}
	}
	if !errors.As(err, &exit) {
		return Outcome{Code: -1, Error: err.Error()}
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return Outcome{Code: 128 + int(status.Signal()), Error: exit.Error()}
	}
	return Outcome{Code: exit.ExitCode()}
}

// save writes through the page cache: the guest ends right after.
func (o Outcome) save(path string) (err error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode outcome: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("store outcome: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(raw); err != nil {
		return fmt.Errorf("store outcome: %w", err)
	}
	return f.Sync()
}

// openRawTerminal opens a terminal device that shall carry bytes as they are.
func openRawTerminal(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open output: %w", err)
	}
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read mode of %s: %w", path, err), f.Close())
	}
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t); err != nil {
		return nil, errors.Join(fmt.Errorf("set mode of %s: %w", path, err), f.Close())
	}
	return f, nil
}

// drainTerminal waits until the kernel has handed all output over (tcdrain(3)). Signals of Go's
// runtime interrupt it.
func drainTerminal(f *os.File) error {
	const afterOutput = 1 // TCSBRK with a non-zero argument waits and sends no break
	var err error = unix.EINTR
	for errors.Is(err, unix.EINTR) {
		err = unix.IoctlSetInt(int(f.Fd()), unix.TCSBRK, afterOutput)
	}
	if err != nil {
		return fmt.Errorf("drain output: %w", err)
	}
	return nil
}
