// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"os"
	"path/filepath"
	"testing"
)

// A NIC with the link physfn is a virtual function, also if the link's target is not visible.
func TestVirtualFunction(t *testing.T) {
	t.Parallel()
	card, function := t.TempDir(), t.TempDir()
	for _, dir := range []string{card, function} {
		if err := os.Mkdir(filepath.Join(dir, "device"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../0000:03:00.0", filepath.Join(function, "device/physfn")); err != nil {
		t.Fatal(err)
	}
	if isVirtualFunction(card) || !isVirtualFunction(function) {
		t.Errorf("card %v, function %v; want only the latter to be one", isVirtualFunction(card), isVirtualFunction(function))
	}
}
