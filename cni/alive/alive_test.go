// SPDX-License-Identifier: Apache-2.0

package alive_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/cni/alive"
)

func TestTouchThenAge(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "alive")
	for range 2 {
		if err := alive.Touch(path); err != nil {
			t.Fatal(err)
		}
		// The file's own time must not matter: it follows the time of day.
		if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		age, err := alive.Age(path)
		if err != nil || age < 0 || age > time.Minute {
			t.Errorf("Age after Touch: got %v, %v, want next to nothing", age, err)
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
		"Empty":    {"the disk was full", ""},
		"Text":     {"somebody else's file", "yes\n"},
		"Zero":     {"no kernel was alive at its own start", "0\n"},
		"Negative": {"nor before", "-5\n"},
		"Future":   {"from before a reboot, on a /run that is not emptied", "9223372036854775807\n"},
		"Overflow": {"not a number of ours", "9223372036854775808\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "alive")
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if age, err := alive.Age(path); !errors.Is(err, alive.ErrNoHeartbeat) {
				t.Errorf("%s: Age: got %v, %v, want ErrNoTime", tc.reason, age, err)
			}
		})
	}
	if _, err := alive.Age(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Age without a file: got %v, want fs.ErrNotExist", err)
	}
}

func TestTouchSaysWhatFails(t *testing.T) {
	t.Parallel()
	if err := alive.Touch(filepath.Join(t.TempDir(), "none", "alive")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Touch in a folder that is missing: got %v", err)
	}
	dir := t.TempDir()
	if err := alive.Touch(dir); err == nil {
		t.Error("Touch of a folder: got no error")
	}
}
