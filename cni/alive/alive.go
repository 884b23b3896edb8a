// SPDX-License-Identifier: Apache-2.0

// Package alive is the daemon's heartbeat: a file with the time at which it was
// last alive, by which the plugin answers STATUS while the daemon restarts.
package alive

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

// ErrNoHeartbeat says that the file holds no time of this boot.
var ErrNoHeartbeat = errors.New("no heartbeat")

// bootTime is CLOCK_BOOTTIME: the time of day jumps when a machine without a
// battery meets its time server, and a daemon that lives would look dead.
func bootTime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("read CLOCK_BOOTTIME: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}

// Touch writes the present time. Readers see the old time or the new one.
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

// Age returns how long ago the file was touched. A time in the future is from
// before a reboot and answers to ErrNoTime.
func Age(path string) (time.Duration, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read heartbeat: %w", err)
	}
	then, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read heartbeat %s: %w: %w", path, ErrNoHeartbeat, err)
	}
	now, err := bootTime()
	if err != nil {
		return 0, err
	}
	if age := now - time.Duration(then); then > 0 && age >= 0 {
		return age, nil
	}
	return 0, fmt.Errorf("read heartbeat %s: %w: %d is not a time since boot", path, ErrNoHeartbeat, then)
}
