// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// sweep ends the labs of tests that did not live to do it themselves.
func sweep(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(runDir, "*", stateFile))
	if err != nil {
		return fmt.Errorf("list labs: %w", err)
	}
	var errs []error
	for _, file := range files {
		if orphaned(file) {
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
