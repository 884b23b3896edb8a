// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/patchbay-cni/patchbay/test/lab/remote"
)

// imported has an empty file for each archive that containerd took, by its digest.
const imported = "/var/lib/containerd/imported/"

// Import gives archives of images to the node's containerd, unless it had them
// before. They must be in folders of Config.Images or outside of /tmp and /run.
func (c Config) Import(ctx context.Context, archives ...string) error {
	const script = `test -e "$1" || {
		ctr --connect-timeout 60s --namespace k8s.io images import "$0"
		mkdir -p "${1%/*}"
		touch "$1"
	}`
	for _, file := range archives {
		sum, err := digest(file)
		if err != nil {
			return err
		}
		var out strings.Builder
		code, err := c.Run(ctx, remote.Request{Args: []string{"sh", "-ec", script, file, imported + sum}},
			remote.Streams{Out: &out, Err: &out})
		if err != nil {
			return err
		}
		if code != 0 {
			return fmt.Errorf("import %s on %s: exit code %d: %s", file, c.Name, code, out.String())
		}
	}
	return nil
}

func digest(file string) (sum string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("read archive: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read archive %s: %w", file, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
