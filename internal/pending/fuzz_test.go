// SPDX-License-Identifier: Apache-2.0

package pending_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/patchbay-cni/patchbay/internal/pending"
)

// For any content, Read returns the request for the file's name, or ErrMalformed.
func FuzzRead(f *testing.F) {
	f.Add("c", "eth0", []byte(`{"command":"DEL","containerID":"c","ifName":"eth0","config":{}}`))
	f.Add("c", "eth0", []byte(`{"command":"DEL","containerID":"d","ifName":"eth0"}`))
	f.Add("", "", []byte("null"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, id, ifName string, content []byte) {
		name := pending.FileName(id, ifName)
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		req, err := pending.Read(dir, name)
		if err != nil {
			if !errors.Is(err, pending.ErrMalformed) {
				t.Errorf("got %v, want ErrMalformed", err)
			}
			return
		}
		if pending.FileName(req.ContainerID, req.IfName) != name {
			t.Errorf("file of %q, %q: got the request of %q, %q", id, ifName, req.ContainerID, req.IfName)
		}
	})
}
