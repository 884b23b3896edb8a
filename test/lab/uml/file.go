// SPDX-License-Identifier: Apache-2.0

package uml

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// copyFile replaces to by a copy of an executable.
func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy program: %w", err)
	}
	defer in.Close()
	next := to + ".new"
	out, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return fmt.Errorf("copy program: %w", err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copy program %s: %w", from, err)
	}
	return os.Rename(next, to)
}
