// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// LogsVariable names a folder for the logs of failed tests; by default they go to the
// folder for temporary files.
const LogsVariable = "PATCHBAY_LAB_LOGS"

// Time that tests give.
const (
	upTimeout   = 15 * time.Minute // a busy machine takes four for the images alone
	downTimeout = 2 * time.Minute
	logsTimeout = 5 * time.Minute
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
	tearDown(tb, config.Name)
	tb.Cleanup(func() {
		if tb.Failed() {
			collectLogs(tb, config.Name)
		}
		tearDown(tb, config.Name)
		left, err := Leftovers(config.Name)
		if err != nil || len(left) > 0 {
			tb.Errorf("lab %s left behind %v (error: %v)", config.Name, left, err)
		}
	})
	ctx, cancel := context.WithTimeout(tb.Context(), upTimeout)
	defer cancel()
	l, err := Up(ctx, config)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func tearDown(tb testing.TB, name string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), downTimeout)
	defer cancel()
	if err := Down(ctx, name); err != nil {
		tb.Error(err)
	}
}

func collectLogs(tb testing.TB, name string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), logsTimeout)
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

// EndOnInterrupt ends the labs that this process owns, and then the process, when it is
// interrupted: tests do not run their clean-up then. The context that it returns ends with
// the interrupt.
func EndOnInterrupt() (ctx context.Context, stop func()) {
	ctx, ignore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	end := context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.Background(), downTimeout)
		defer cancel()
		if err := downIf(ending, isOwned); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	})
	return ctx, func() {
		end()
		ignore()
	}
}

// isOwned tells whether this process owns a lab.
func isOwned(file string) bool {
	me, err := process.Of(os.Getpid())
	return err == nil && ownerOf(file, process.ID{}) == me
}

// sweep ends the labs of tests that did not live to do it themselves.
func sweep(ctx context.Context) error { return downIf(ctx, isOrphaned) }

// isOrphaned tells whether a lab had an owner that is gone. What cannot be read is no
// test's to remove.
func isOrphaned(file string) bool {
	owner := ownerOf(file, process.ID{})
	return owner != (process.ID{}) && !owner.Alive()
}

// downIf ends the labs whose state files match.
func downIf(ctx context.Context, match func(file string) bool) error {
	files, err := filepath.Glob(filepath.Join(runDir, "*", stateFile))
	if err != nil {
		return fmt.Errorf("list labs: %w", err)
	}
	var errs []error
	for _, file := range files {
		if match(file) {
			errs = append(errs, Down(ctx, filepath.Base(filepath.Dir(file))))
		}
	}
	return errors.Join(errs...)
}

// ownerOf returns the owner that a lab's state names, else the other one: a lab keeps
// its owner when it is completed by somebody else.
func ownerOf(file string, other process.ID) process.ID {
	raw, err := os.ReadFile(file)
	if err != nil {
		return other
	}
	var c Config
	if err := json.Unmarshal(raw, &c); err != nil || c.Owner == (process.ID{}) {
		return other
	}
	return c.Owner
}
