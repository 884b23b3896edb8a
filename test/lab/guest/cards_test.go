// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestFindCard(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, mac := range map[string]string{"eth0": "02:00:00:00:00:01", "eth1": "02:00:00:00:00:02"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "address"), []byte(mac+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		reason, mac, want string
		err               error
	}{
		"There":   {reason: "The address decides, not the order.", mac: "02:00:00:00:00:02", want: "eth1"},
		"Missing": {reason: "A guest without one of its cards must not go on.", mac: "02:00:00:00:00:03", err: ErrNoCard},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := findCard(dir, tc.mac)
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%s\ngot %q, %v; want %q, %v", tc.reason, got, err, tc.want, tc.err)
			}
		})
	}
}
