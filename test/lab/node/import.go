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
// before. They are sent, not opened in the node: its kernel goes on showing the former
// content of a file that was replaced on the machine.
func (c Config) Import(ctx context.Context, archives ...string) error {
	for _, file := range archives {
		sum, err := digest(file)
		if err != nil {
			return err
		}
		if err := c.importOne(ctx, file, imported+sum); err != nil {
			return fmt.Errorf("import %s on %s: %w", file, c.Name, err)
		}
	}
	return nil
}

// importOne leaves the file mark when containerd has the archive.
func (c Config) importOne(ctx context.Context, file, mark string) error {
	var out strings.Builder
	code, err := c.Run(ctx, remote.Request{Args: []string{"test", "-e", mark}}, remote.Streams{Out: &out, Err: &out})
	if err != nil || code == 0 {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	const script = `ctr --connect-timeout 300s --namespace k8s.io images import -
		mkdir -p "${0%/*}"
		touch "$0"`
	code, err = c.Run(ctx, remote.Request{Args: []string{"sh", "-ec", script, mark}},
		remote.Streams{In: f, Out: &out, Err: &out})
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d: %s", code, out.String())
	}
	return err
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
