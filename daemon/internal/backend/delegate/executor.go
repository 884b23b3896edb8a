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
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/internal/text"
)

const (
	// defaultTimeout bounds one execution. Kubelet's timeout for a sandbox is two minutes.
	defaultTimeout = 60 * time.Second
	// maxOutput bounds a plugin's standard output, in bytes: the result is journalled.
	maxOutput = 256 << 10
	// maxMessage bounds the plugin's output in an error, in bytes.
	maxMessage = 2 << 10
	// busyRetryInterval is the time between the at most maxBusyAttempts executions of a plugin
	// that an installer is writing.
	busyRetryInterval = 100 * time.Millisecond
	maxBusyAttempts   = 50
	// outputWaitDelay is how long children of a plugin that ended may keep its output open.
	outputWaitDelay = 2 * time.Second
)

// executor runs plugins with a root directory.
type executor struct {
	version.PluginDecoder
	// root is the root directory of plugins; "/" is the daemon's own.
	root string
	// timeout bounds one execution.
	timeout time.Duration
}

// ExecPlugin runs a plugin and returns its standard output. The error is the plugin's own, a
// *types.Error, if it printed one.
func (e *executor) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	for try := 1; ; try++ {
		stdout, err := e.runOnce(ctx, path, stdin, environ)
		if !errors.Is(err, syscall.ETXTBSY) || try == maxBusyAttempts {
			return stdout, err
		}
		// An installer is writing the file.
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(busyRetryInterval):
		}
	}
}

func (e *executor) runOnce(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	stdout, stderr := &limitedBuffer{limit: maxOutput}, &limitedBuffer{limit: maxMessage}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Dir = environ, "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), stdout, stderr
	// In a process group of its own, the plugin's children can be ended with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if e.root != "/" {
		cmd.SysProcAttr.Chroot = e.root
	}
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	cmd.WaitDelay = outputWaitDelay
	err := cmd.Run()
	switch {
	case err == nil && stdout.exceeded:
		return nil, fmt.Errorf("it printed more than %d bytes", maxOutput)
	case err == nil:
		return stdout.buf.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("it was killed: %w%s", context.Cause(ctx), stderr.messageSuffix())
	}
	return nil, pluginFailure(err, stdout, stderr)
}

func killGroup(pid int) error {
	err := syscall.Kill(-pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// pluginFailure is the error of a plugin that failed: the error that it printed (CNI 1.1,
// section 5, "Error"), else its exit status and output.
func pluginFailure(err error, stdout, stderr *limitedBuffer) error {
	var own types.Error
	if json.Unmarshal(stdout.buf.Bytes(), &own) == nil && own.Msg != "" {
		own.Msg, own.Details = text.Truncate(own.Msg, maxMessage), text.Truncate(own.Details, maxMessage)
		return &own
	}
	return fmt.Errorf("%w%s%s", err, stdout.messageSuffix(), stderr.messageSuffix())
}

// limitedBuffer keeps the first bytes that are written to it. The buffer is not embedded: its
// ReadFrom would ignore the limit.
type limitedBuffer struct {
	buf      bytes.Buffer
	limit    int
	exceeded bool
}

// Write never fails, so that a plugin that prints too much neither blocks nor gets SIGPIPE.
func (l *limitedBuffer) Write(p []byte) (int, error) {
	n := len(p)
	if room := l.limit - l.buf.Len(); n > room {
		l.exceeded, p = true, p[:room]
	}
	_, _ = l.buf.Write(p)
	return n, nil
}

// messageSuffix is the output for the end of a message.
func (l *limitedBuffer) messageSuffix() string {
	output := strings.TrimSpace(l.buf.String())
	if output == "" {
		return ""
	}
	return fmt.Sprintf(": %q", text.Truncate(output, maxMessage))
}

// errPluginNotInstalled means that no directory of CNI_PATH has the plugin.
var errPluginNotInstalled = errors.New("plugin is not installed")

// FindInPath returns the absolute path, below the root, of the first executable file of that
// name in the directories, or errPluginNotInstalled.
func (e *executor) FindInPath(plugin string, directories []string) (string, error) {
	if !fileNamePattern.MatchString(plugin) {
		return "", fmt.Errorf("find plugin %q: must be a file name", plugin)
	}
	for _, dir := range directories {
		path := filepath.Join(dir, plugin)
		ok, err := e.isExecutable(path)
		if err != nil {
			return "", fmt.Errorf("find plugin %s: %w", path, err)
		}
		if ok {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: plugin %s is in none of the directories of CNI_PATH: %s", errPluginNotInstalled, plugin, strings.Join(directories, ", "))
}

// isExecutable reports whether a path is an executable file.
func (e *executor) isExecutable(path string) (bool, error) {
	st, err := e.stat(path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0, nil
}

// stat resolves a path as the plugin's process does: absolute links are below the root directory,
// and ".." does not leave it. The kernel follows at most 40 links.
func (e *executor) stat(path string) (st unix.Stat_t, err error) {
	root, err := os.Open(e.root)
	if err != nil {
		return st, err
	}
	defer func() { _ = root.Close() }()
	fd, err := unix.Openat2(int(root.Fd()), path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT,
	})
	if err != nil {
		return st, err
	}
	defer func() { _ = unix.Close(fd) }()
	err = unix.Fstat(fd, &st)
	return st, err
}

var _ invoke.Exec = (*executor)(nil)
