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
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/patchbay-cni/patchbay/test/lab/image"
	"github.com/patchbay-cni/patchbay/test/lab/remote"
)

// imported has an empty file for each archive that containerd took, by its digest.
const imported = "/var/lib/containerd/imported/"

// importAttempts is how often an archive is imported whose files are damaged on the disk.
const importAttempts = 3

// contents has the files of each archive that was read, by its digest: all nodes of a lab
// import the same ones, at the same time.
var contents struct {
	sync.Mutex
	known map[string]func() ([]image.File, error)
}

// filesOf lists an archive's files, and reads it once.
func filesOf(archive, sum string) ([]image.File, error) {
	contents.Lock()
	read := contents.known[sum]
	if read == nil {
		read = sync.OnceValues(func() ([]image.File, error) { return image.Files(archive) })
		if contents.known == nil {
			contents.known = map[string]func() ([]image.File, error){}
		}
		contents.known[sum] = read
	}
	contents.Unlock()
	return read()
}

// Import gives archives of images to the node's containerd, unless it had them
// before. They are sent, not opened in the node: its kernel goes on showing the former
// content of a file that was replaced on the machine.
func (c Config) Import(ctx context.Context, archives ...string) error {
	for _, file := range archives {
		sum, err := digest(file)
		if err != nil {
			return err
		}
		if err := c.importOne(ctx, file, sum); err != nil {
			return fmt.Errorf("import %s on %s: %w", file, c.Name, err)
		}
	}
	return nil
}

// importOne leaves a mark when containerd has the archive and its files are undamaged. A
// node's kernel once lost a sector of a program that containerd had unpacked, without an
// error (docs/lab.md).
func (c Config) importOne(ctx context.Context, file, sum string) error {
	mark := imported + sum
	code, err := c.Run(ctx, remote.Request{Args: []string{"test", "-e", mark}}, remote.Streams{})
	if err != nil || code == 0 {
		return err
	}
	for attempt := 1; ; attempt++ {
		unpacked, err := c.unpack(ctx, file)
		if err != nil {
			return err
		}
		damage, err := c.damage(ctx, file, sum)
		if err != nil {
			return err
		}
		if damage == "" {
			_, err := c.shell(ctx, nil, `mkdir -p "${0%/*}"; touch "$0"`, mark)
			return err
		}
		if attempt == importAttempts {
			return fmt.Errorf("%w: attempt %d of %d:\n%s", ErrDamaged, attempt, importAttempts, damage)
		}
		c.logf("  %s: %s was damaged while it was unpacked, importing it again:\n%s", c.Name, filepath.Base(file), damage)
		if err := c.removeImages(ctx, unpacked); err != nil {
			return err
		}
	}
}

// unpack returns the digests of the archive's images.
func (c Config) unpack(ctx context.Context, file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	defer f.Close()
	out, err := c.shell(ctx, f, `ctr --connect-timeout 300s --namespace k8s.io images import -`)
	return digests.FindAllString(out, -1), err
}

// digests are in the output of "ctr images import", one for each image.
var digests = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// damage describes the archive's files that are not on the node's disk as they are in
// the archive. It reads the disk itself, since what is right in memory may be wrong there.
func (c Config) damage(ctx context.Context, file, sum string) (string, error) {
	files, err := filesOf(file, sum)
	if err != nil {
		return "", err
	}
	var list strings.Builder
	for _, f := range files {
		fmt.Fprintln(&list, f.Sum, f.Path)
	}
	// A former build's snapshot has another file of the same path.
	const script = `cd /var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots
		while read -r sum path; do
			where="on disk and in memory"
			for f in */fs/"$path"; do
				[ "$(dd "if=$f" iflag=direct bs=1M status=none | sha256sum)" != "$sum  -" ] || continue 2
				[ "$(sha256sum <"$f")" != "$sum  -" ] || where="on disk only"
			done
			echo "$path: wrong $where"
		done`
	return c.shell(ctx, strings.NewReader(list.String()), script)
}

// removeImages removes the images of these digests, under all their names, and what
// containerd unpacked of them.
func (c Config) removeImages(ctx context.Context, images []string) error {
	const script = `for digest; do
			ctr --namespace k8s.io images list | awk -v "digest=$digest" '$3 == digest { print $1 }'
		done | sort -u | xargs -r ctr --namespace k8s.io images remove --sync`
	_, err := c.shell(ctx, nil, script, append([]string{"sh"}, images...)...)
	return err
}

// shell runs a script on the node, with arguments from $0 on, and returns its output.
func (c Config) shell(ctx context.Context, in io.Reader, script string, args ...string) (string, error) {
	var out strings.Builder
	code, err := c.Run(ctx, remote.Request{Args: append([]string{"sh", "-ec", script}, args...)},
		remote.Streams{In: in, Out: &out, Err: &out})
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d: %s", code, out.String())
	}
	return out.String(), err
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
