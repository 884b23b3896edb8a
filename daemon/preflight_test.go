// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/daemon/internal/install"
	"github.com/patchbay-cni/patchbay/internal/preflight"
)

// The program prints the facts of the machine on which the test runs.
func TestPreflight(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	if err := Run(t.Context(), []string{"preflight", "--cni-conf-dir=" + t.TempDir()}, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	facts := &preflight.Facts{}
	if err := json.Unmarshal(stdout.Bytes(), facts); err != nil {
		t.Fatalf("decode %q: %v", stdout.String(), err)
	}
	if facts.Kernel == "" || facts.Version == "" || len(facts.Options) != len(preflight.KernelOptions()) || !facts.CNI.HasConfDir {
		t.Errorf("got %s, want kernel, version, all options and the folder", stdout.String())
	}
}

func TestPreflightFlags(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"help":     {"help is no error", []string{"--help"}, ""},
		"argument": {"an argument would be ignored otherwise", []string{"now"}, "arguments: must be none"},
		"root":     {"a folder that does not exist has no facts", []string{"--host-root=/nonexistent"}, "flag --host-root"},
		"flag":     {"flags of the daemon have no effect here", []string{"--node-name=a"}, "unknown flag"},
	} {
		var stdout, stderr bytes.Buffer
		err := Run(t.Context(), append([]string{"preflight"}, tc.args...), &stdout, &stderr)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s: got %v, want %q", name, tc.reason, err, tc.want)
		}
	}
}

// The check knows the name of the file that the daemon installs.
func TestPreflightKnowsOwnConfiguration(t *testing.T) {
	t.Parallel()
	if preflight.OwnConfiguration != install.ConfigName {
		t.Errorf("preflight checks for %s, and the daemon installs %s", preflight.OwnConfiguration, install.ConfigName)
	}
}
