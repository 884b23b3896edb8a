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
)

const (
	// defaultTimeout bounds one execution; kubelet gives a sandbox two minutes.
	defaultTimeout = 60 * time.Second
	// maxOutput is the most that is read of a plugin's standard output, in bytes.
	// A result is journalled.
	maxOutput = 256 << 10
	// maxMessage is what is kept of what it says in an error, in bytes.
	maxMessage = 2 << 10
	// busyRetryInterval is between the busyTries of a plugin that is being written.
	busyRetryInterval = 100 * time.Millisecond
	maxBusyAttempts   = 50
	// outputWaitDelay is for output that a plugin's own children still hold open.
	outputWaitDelay = 2 * time.Second
)

// executor runs plugins below a root folder.
type executor struct {
	version.PluginDecoder
	// root is where the plugins' files are, "/" for our own.
	root string
	// timeout bounds one execution.
	timeout time.Duration
}

// ExecPlugin runs a plugin to its end and returns its standard output. The error
// is the plugin's own, a *types.Error, where it said one.
func (e *executor) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	for try := 1; ; try++ {
		stdout, err := e.runOnce(ctx, path, stdin, environ)
		if !errors.Is(err, syscall.ETXTBSY) || try == maxBusyAttempts {
			return stdout, err
		}
		// An installer is writing the file just now.
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(busyRetryInterval):
		}
	}
}

// runOnce runs the plugin one time.
func (e *executor) runOnce(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	stdout, stderr := &limitedBuffer{limit: maxOutput}, &limitedBuffer{limit: maxMessage}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Dir = environ, "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), stdout, stderr
	// A group of its own, so that its children end with it.
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
		return nil, fmt.Errorf("it was ended: %w%s", context.Cause(ctx), stderr.messageSuffix())
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

// pluginFailure is the error of a plugin that ended with one: what it says itself on
// standard output (CNI 1.1, section 5, "Error"), else what is known from outside.
func pluginFailure(err error, stdout, stderr *limitedBuffer) error {
	var own types.Error
	if json.Unmarshal(stdout.buf.Bytes(), &own) == nil && own.Msg != "" {
		own.Msg, own.Details = truncate(own.Msg), truncate(own.Details)
		return &own
	}
	return fmt.Errorf("%w%s%s", err, stdout.messageSuffix(), stderr.messageSuffix())
}

// limitedBuffer keeps the first bytes of what is written to it.
// The buffer is not embedded: with its ReadFrom a copy would go past the limit.
type limitedBuffer struct {
	buf      bytes.Buffer
	limit    int
	exceeded bool
}

// Write never fails: a plugin that prints too much is not to hang or to die of it.
func (l *limitedBuffer) Write(p []byte) (int, error) {
	n := len(p)
	if room := l.limit - l.buf.Len(); n > room {
		l.exceeded, p = true, p[:room]
	}
	_, _ = l.buf.Write(p)
	return n, nil
}

// messageSuffix is the text for the end of a message.
func (l *limitedBuffer) messageSuffix() string {
	text := truncate(strings.TrimSpace(l.buf.String()))
	if text == "" {
		return ""
	}
	return fmt.Sprintf(": %q", text)
}

// truncate shortens what a plugin says to what fits a message.
func truncate(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}

// errPluginNotInstalled says that no folder has the plugin.
var errPluginNotInstalled = errors.New("plugin is not installed")

// FindInPath returns the absolute path, below the root, of the first executable
// file of that name in the folders, or errMissing.
func (e *executor) FindInPath(plugin string, folders []string) (string, error) {
	if !fileNamePattern.MatchString(plugin) {
		return "", fmt.Errorf("find plugin %q: not a file name", plugin)
	}
	for _, dir := range folders {
		path := filepath.Join(dir, plugin)
		ok, err := e.isExecutable(path)
		if err != nil {
			return "", fmt.Errorf("find plugin %s: %w", path, err)
		}
		if ok {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: plugin %s is in none of the folders of CNI_PATH: %s", errPluginNotInstalled, plugin, strings.Join(folders, ", "))
}

// isExecutable looks the path up as the plugin's process will: links, absolute
// ones too, are the root folder's, not the daemon's own.
func (e *executor) isExecutable(path string) (bool, error) {
	root, err := os.Open(e.root)
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }()
	fd, err := unix.Openat2(int(root.Fd()), path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT,
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0, nil
}

var _ invoke.Exec = (*executor)(nil)
