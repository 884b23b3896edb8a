// SPDX-License-Identifier: Apache-2.0

package heartbeat_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/internal/heartbeat"
)

func TestTouchThenAge(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "alive")
	for range 2 {
		if err := heartbeat.Touch(path); err != nil {
			t.Fatal(err)
		}
		// The file's modification time must not matter: it follows the time of day.
		if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		age, err := heartbeat.Age(path)
		if err != nil || age < 0 || age > time.Minute {
			t.Errorf("Age after Touch: got %v, %v, want less than a minute", age, err)
		}
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("files beside the heartbeat: got %v, %v, want none", left, err)
	}
}

func TestAgeOfNoHeartbeat(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, content string
	}{
		"Empty":    {"The disk was full.", ""},
		"Text":     {"The file is another program's.", "yes\n"},
		"Zero":     {"No daemon runs at the start of the kernel.", "0\n"},
		"Negative": {"No daemon runs before the start of the kernel.", "-5\n"},
		"Future":   {"The time is from before a reboot, and /run was not emptied.", "9223372036854775807\n"},
		"Overflow": {"The number is too large.", "9223372036854775808\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "alive")
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if age, err := heartbeat.Age(path); !errors.Is(err, heartbeat.ErrNoHeartbeat) {
				t.Errorf("%s Age: got %v, %v, want ErrNoHeartbeat", tc.reason, age, err)
			}
		})
	}
	if _, err := heartbeat.Age(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Age without a file: got %v, want fs.ErrNotExist", err)
	}
}

func TestTouchErrors(t *testing.T) {
	t.Parallel()
	if err := heartbeat.Touch(filepath.Join(t.TempDir(), "none", "alive")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Touch in a missing directory: got %v", err)
	}
	dir := t.TempDir()
	if err := heartbeat.Touch(dir); err == nil {
		t.Error("Touch of a directory: got no error")
	}
}
