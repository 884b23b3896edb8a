// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// EndOnInterrupt ends the labs that this process owns, and then the process, when it is
// interrupted: tests do not run their clean-up then. The context that it returns ends with
// the interrupt.
func EndOnInterrupt() (ctx context.Context, stop func()) {
	ctx, ignore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	end := context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.Background(), downPatience)
		defer cancel()
		if err := downIf(ending, owned); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	})
	return ctx, func() {
		end()
		ignore()
	}
}

// owned tells whether this process owns a lab.
func owned(file string) bool {
	me, err := process.Of(os.Getpid())
	return err == nil && ownerOf(file, process.ID{}) == me
}

// sweep ends the labs of tests that did not live to do it themselves.
func sweep(ctx context.Context) error { return downIf(ctx, orphaned) }

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

// orphaned tells whether a lab had an owner that is gone. What cannot be read is no
// test's to remove.
func orphaned(file string) bool {
	owner := ownerOf(file, process.ID{})
	return owner != (process.ID{}) && !owner.Alive()
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
