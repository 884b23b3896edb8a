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
	raw, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	var c Config
	err = json.Unmarshal(raw, &c)
	return err == nil && c.Owner != (process.ID{}) && !c.Owner.Alive()
}
