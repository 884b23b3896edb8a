// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// LogsVariable names a folder for the logs of failed tests; by default they go to the
// folder for temporary files.
const LogsVariable = "PATCHBAY_LAB_LOGS"

// Time that tests give.
const (
	upPatience   = 15 * time.Minute // a busy machine takes four for the images alone
	downPatience = 2 * time.Minute
	logsPatience = 5 * time.Minute
)

// Start brings up a lab for a test, with a name of its own unless the configuration has
// one. Labs of tests that were killed are removed first. When the test ends the lab
// does, and all that it leaves behind is an error. When the test has failed, all logs
// are collected first, in one folder that the test's output names.
func Start(tb testing.TB, config Config) *Lab {
	tb.Helper()
	if config.Name == "" {
		sum := sha256.Sum256([]byte(tb.Name()))
		config.Name = fmt.Sprintf("t-%x-%d", sum[:4], os.Getpid())
	}
	owner, err := process.Of(os.Getpid())
	if err != nil {
		tb.Fatal(err)
	}
	config.Owner = owner
	if config.Progress == nil {
		config.Progress = testLog{tb}
	}
	if err := sweep(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	end(tb, config.Name)
	tb.Cleanup(func() {
		if tb.Failed() {
			collect(tb, config.Name)
		}
		end(tb, config.Name)
		left, err := Leftovers(config.Name)
		if err != nil || len(left) > 0 {
			tb.Errorf("lab %s left behind %v (error: %v)", config.Name, left, err)
		}
	})
	ctx, cancel := context.WithTimeout(tb.Context(), upPatience)
	defer cancel()
	l, err := Up(ctx, config)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func end(tb testing.TB, name string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), downPatience)
	defer cancel()
	if err := Down(ctx, name); err != nil {
		tb.Error(err)
	}
}

func collect(tb testing.TB, name string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), logsPatience)
	defer cancel()
	//nolint:usetesting // the logs must outlive the test
	dir, err := os.MkdirTemp(os.Getenv(LogsVariable), "lab-"+name+"-")
	if err != nil {
		tb.Errorf("collect logs: %v", err)
		return
	}
	l, err := Open(name)
	if err == nil {
		err = l.Logs(ctx, dir)
		restarts, asked := l.Restarts(ctx)
		tb.Log(restarts)
		err = errors.Join(err, asked)
	}
	tb.Errorf("all logs of lab %s are in %s (not collected: %v)", name, dir, err)
}

// testLog is the progress of a test's lab.
type testLog struct{ tb testing.TB }

func (l testLog) Write(line []byte) (int, error) {
	l.tb.Logf("%s", line)
	return len(line), nil
}
