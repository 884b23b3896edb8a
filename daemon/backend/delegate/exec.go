// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

const (
	// defaultTimeout bounds one execution; kubelet gives a sandbox two minutes.
	defaultTimeout = 60 * time.Second
	// maxOutput is the most that is read of a plugin's standard output, in bytes.
	// A result is journalled.
	maxOutput = 256 << 10
	// maxMessage is what is kept of what it says in an error, in bytes.
	maxMessage = 2 << 10
	// busyWait is between the busyTries of a plugin that is being written.
	busyWait  = 100 * time.Millisecond
	busyTries = 50
	// ioWait is for output that a plugin's own children still hold open.
	ioWait = 2 * time.Second
)

// executor runs plugins below a root folder.
type executor struct {
	version.PluginDecoder
	// root is where the plugins' files are, "/" for our own.
	root string
	// timeout bounds one execution.
	timeout time.Duration
}

var _ invoke.Exec = (*executor)(nil)

// ExecPlugin runs a plugin to its end and returns its standard output. The error
// is the plugin's own, a *types.Error, where it said one.
func (e *executor) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	for try := 1; ; try++ {
		stdout, err := e.once(ctx, path, stdin, environ)
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries {
			return stdout, err
		}
		// An installer is writing the file just now.
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(busyWait):
		}
	}
}

// once runs the plugin one time.
func (e *executor) once(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	stdout, stderr := &limited{most: maxOutput}, &limited{most: maxMessage}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Dir = environ, "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), stdout, stderr
	// A group of its own, so that its children end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if e.root != "/" {
		cmd.SysProcAttr.Chroot = e.root
	}
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	cmd.WaitDelay = ioWait
	err := cmd.Run()
	switch {
	case err == nil && stdout.over:
		return nil, fmt.Errorf("it printed more than %d bytes", maxOutput)
	case err == nil:
		return stdout.buf.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("it was ended: %w%s", context.Cause(ctx), stderr.quoted())
	}
	return nil, failure(err, stdout, stderr)
}

func killGroup(pid int) error {
	err := syscall.Kill(-pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// failure is the error of a plugin that ended with one: what it says itself on
// standard output (CNI 1.1, section 5, "Error"), else what is known from outside.
func failure(err error, stdout, stderr *limited) error {
	var own types.Error
	if json.Unmarshal(stdout.buf.Bytes(), &own) == nil && own.Msg != "" {
		own.Msg, own.Details = clip(own.Msg), clip(own.Details)
		return &own
	}
	return fmt.Errorf("%w%s%s", err, stdout.quoted(), stderr.quoted())
}
