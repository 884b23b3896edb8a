// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"testing"
	"time"
)

// LogsVariable names a folder for the logs of failed tests; by default they go to the
// folder for temporary files.
const LogsVariable = "PATCHBAY_LAB_LOGS"

// Time that tests give.
const (
	upPatience   = 5 * time.Minute
	downPatience = time.Minute
	logsPatience = 2 * time.Minute
)

// Start brings up a lab for a test, named after it unless the configuration has a
// name. What an earlier run left of it is removed first. When the test ends the lab
// does, and all that it leaves behind is an error. When the test has failed, all logs
// are collected first, in one folder that the test's output names.
func Start(t testing.TB, config Config) *Lab {
	t.Helper()
	if config.Name == "" {
		sum := sha256.Sum256([]byte(t.Name()))
		config.Name = "t-" + hex.EncodeToString(sum[:6])
	}
	if config.Progress == nil {
		config.Progress = testLog{t}
	}
	end(t, config.Name)
	t.Cleanup(func() {
		if t.Failed() {
			collect(t, config.Name)
		}
		end(t, config.Name)
		left, err := Leftovers(config.Name)
		if err != nil || len(left) > 0 {
			t.Errorf("lab %s left behind %v (error: %v)", config.Name, left, err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), upPatience)
	defer cancel()
	l, err := Up(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func end(t testing.TB, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), downPatience)
	defer cancel()
	if err := Down(ctx, name); err != nil {
		t.Error(err)
	}
}

func collect(t testing.TB, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), logsPatience)
	defer cancel()
	dir, err := os.MkdirTemp(os.Getenv(LogsVariable), "lab-"+name+"-")
	if err != nil {
		t.Errorf("collect logs: %v", err)
		return
	}
	l, err := Open(name)
	if err == nil {
		err = l.Logs(ctx, dir)
	}
	t.Errorf("all logs of lab %s are in %s (not collected: %v)", name, dir, err)
}

// testLog is the progress of a test's lab.
type testLog struct{ t testing.TB }

func (l testLog) Write(line []byte) (int, error) {
	l.t.Logf("%s", line)
	return len(line), nil
}
