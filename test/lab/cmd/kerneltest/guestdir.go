// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/test/lab/vm"
)

const (
	folderPrefix = "kerneltest-"
	lockFile     = "lock"
)

// newGuestDir makes a guest's folder and returns it with what ends guest and folder. The
// lock in it tells others, for as long as this process lives, that it is in use.
func newGuestDir(ctx context.Context) (dir string, end func() error, err error) {
	dir, err = os.MkdirTemp("", folderPrefix)
	if err != nil {
		return "", nil, fmt.Errorf("make folder: %w", err)
	}
	lock, err := os.Create(filepath.Join(dir, lockFile))
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("lock folder: %w", err), os.RemoveAll(dir))
	}
	return dir, func() error { return errors.Join(removeGuest(ctx, dir), lock.Close()) }, nil
}

// removeStaleGuests ends what earlier runs left that were killed themselves.
func removeStaleGuests(ctx context.Context) error {
	const settled = time.Minute // a younger folder may be about to be locked
	locks, err := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*", lockFile))
	if err != nil {
		return fmt.Errorf("list folders: %w", err)
	}
	for _, name := range locks {
		if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) > settled {
			if err := removeIfStale(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func removeIfStale(ctx context.Context, name string) error {
	lock, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open lock: %w", err)
	}
	defer lock.Close()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil // in use
	}
	return removeGuest(ctx, filepath.Dir(name))
}

// removeGuest ends a guest, with helpers of the kernel that may outlive it, and its
// folder, also when ctx has ended.
func removeGuest(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := vm.Kill(ctx, dir); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove folder: %w", err)
	}
	return nil
}
