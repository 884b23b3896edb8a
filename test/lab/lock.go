// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lock makes the lab's folder and keeps other commands from changing the lab. What it
// returns unlocks; the kernel does, too, when the process dies.
func (c Config) lock() (unlock func(), err error) {
	for {
		if err := os.MkdirAll(c.dir(), 0o755); err != nil {
			return nil, fmt.Errorf("make lab's folder: %w", err)
		}
		f, err := os.Open(c.dir())
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("lock lab: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			return nil, errors.Join(fmt.Errorf("lock lab: %w", err), f.Close())
		}
		// Another command's down may have removed the folder that is locked now.
		mine, err1 := f.Stat()
		current, err2 := os.Stat(c.dir())
		if err1 == nil && err2 == nil && os.SameFile(mine, current) {
			return func() { _ = f.Close() }, nil
		}
		_ = f.Close()
	}
}
