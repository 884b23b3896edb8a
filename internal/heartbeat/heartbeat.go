// SPDX-License-Identifier: Apache-2.0

// Package heartbeat writes and reads the daemon's heartbeat: a file with the time of the last write.
// The plugin uses it to answer STATUS while the daemon restarts.
package heartbeat

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoHeartbeat means that the file does not have a time since this boot.
var ErrNoHeartbeat = errors.New("no heartbeat")

// bootTime returns CLOCK_BOOTTIME. The time of day can jump when the machine synchronises its clock,
// and the heartbeat of a running daemon would seem old.
func bootTime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("read CLOCK_BOOTTIME: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}

// Touch writes the present time atomically.
func Touch(path string) error {
	now, err := bootTime()
	if err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	if err := os.WriteFile(tmp, []byte(strconv.FormatInt(int64(now), 10)+"\n"), 0o600); err != nil {
		return fmt.Errorf("touch heartbeat: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("touch heartbeat: %w", err)
	}
	return nil
}

// Age returns the time since the last Touch. A time in the future is from before a reboot, and
// returns ErrNoHeartbeat.
func Age(path string) (time.Duration, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read heartbeat: %w", err)
	}
	touched, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read heartbeat %s: %w: %w", path, ErrNoHeartbeat, err)
	}
	now, err := bootTime()
	if err != nil {
		return 0, err
	}
	if age := now - time.Duration(touched); touched > 0 && age >= 0 {
		return age, nil
	}
	return 0, fmt.Errorf("read heartbeat %s: %w: %d must be a time since boot", path, ErrNoHeartbeat, touched)
}
