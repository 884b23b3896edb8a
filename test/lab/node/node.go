// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-cni/patchbay/test/lab/fabric"
	"github.com/patchbay-cni/patchbay/test/lab/guest"
	"github.com/patchbay-cni/patchbay/test/lab/image"
	"github.com/patchbay-cni/patchbay/test/lab/netns"
	"github.com/patchbay-cni/patchbay/test/lab/remote"
	"github.com/patchbay-cni/patchbay/test/lab/vm"
)

// Errors of this package.
var (
	// ErrOff says that the node is switched off.
	ErrOff = errors.New("node is off")
	// ErrDied says that the node's kernel ended while it booted.
	ErrDied = errors.New("the guest died")
	// ErrDamaged says that files of an image are not on the node's disk as they are in
	// its archive.
	ErrDamaged = errors.New("unpacked files are damaged")
)

// Start switches the node on and returns when it takes commands; containerd and
// kubelet come up after that. A node that is on is fine.
func Start(ctx context.Context, c Config) error {
	if !IsOn(c.Dir) {
		if err := c.boot(ctx); err != nil {
			return fmt.Errorf("boot %s: %w", c.Name, err)
		}
	}
	if err := c.awaitAgent(ctx); err != nil {
		return fmt.Errorf("boot %s: %w", c.Name, err)
	}
	return nil
}

func (c Config) boot(ctx context.Context) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	_, err := c.Kernel.Boot(vm.Config{
		Dir: c.Dir, Memory: c.Memory, Init: c.Init, Spec: c.guest(),
		Visible: c.programFolders(), Disks: []string{c.Disk}, Cards: c.cards(), Netns: c.Fabric.Netns,
	})
	return err
}

// programFolders have programs that were built.
func (c Config) programFolders() []string {
	if c.Containerd2 != "" {
		return []string{c.Bin, c.Containerd2}
	}
	return []string{c.Bin}
}

// cards are the node's network cards. Those for the networks under test are physical functions,
// where the node's kind has such.
func (c Config) cards() []vm.Card {
	var cards []vm.Card
	for _, card := range c.Port.Cards() {
		cards = append(cards, vm.Card{
			Card:  guest.Card{Name: card.Name, MAC: card.MAC},
			Tap:   card.Tap,
			SRIOV: slices.Contains([]fabric.Card{c.Port.Trunk(), c.Port.Second()}, card),
		})
	}
	return cards
}

// prepare makes what is missing and ends what a kernel that died left running.
func (c Config) prepare(ctx context.Context) error {
	if err := vm.Kill(ctx, c.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := c.Fabric.Plug(c.Port); err != nil {
		return err
	}
	if err := c.makeDisk(); err != nil {
		return err
	}
	return c.writeFiles()
}

// makeDisk makes an empty file system once. The file takes space as it is written to.
func (c Config) makeDisk() (err error) {
	const size = 16 << 30
	if _, err := os.Stat(c.Disk); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.Disk), 0o755); err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	next := c.Disk + ".new"
	f, err := os.Create(next)
	if err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	out, err := exec.Command("mkfs.ext4", "-q", "-E", "lazy_itable_init=1,lazy_journal_init=1", next).CombinedOutput()
	if err != nil {
		return fmt.Errorf("format disk: %w: %s", err, out)
	}
	return os.Rename(next, c.Disk)
}

// awaitAgent polls the agent until it runs a command.
func (c Config) awaitAgent(ctx context.Context) error {
	const pause = 50 * time.Millisecond
	for {
		_, err := c.Run(ctx, remote.Request{Args: []string{"true"}}, remote.Streams{})
		if err == nil || errors.Is(err, remote.ErrNotStarted) {
			return err
		}
		if !IsOn(c.Dir) {
			console, _ := os.ReadFile(vm.ConsoleLog(c.Dir))
			return fmt.Errorf("%w; its console:\n%s", ErrDied, console)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w (last answer: %w)", ctx.Err(), err)
		}
	}
}

// IsOn tells whether the node of that folder is switched on.
func IsOn(dir string) bool {
	pids, err := vm.Processes(dir)
	return err == nil && len(pids) > 0
}

// Kill cuts the node's power. A node that is off is fine.
func Kill(ctx context.Context, dir string) error { return vm.Kill(ctx, dir) }

// Run runs a command in the node and returns its exit code.
func (c Config) Run(ctx context.Context, r remote.Request, s remote.Streams) (int, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		if !IsOn(c.Dir) {
			return -1, fmt.Errorf("run %s on %s: %w", r.Args, c.Name, ErrOff)
		}
		return -1, fmt.Errorf("reach %s: %w", c.Name, err)
	}
	defer c.closeWhenOff(conn)()
	return remote.Run(ctx, conn, r, s)
}

// dial connects. The keep-alive is for a node that was off for a moment: its new kernel
// refuses what it does not know.
func (c Config) dial(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{
		Timeout:         10 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 100},
	}
	return netns.Dial(ctx, c.Fabric.Netns, dialer, "tcp", c.agentAddress())
}

// closeWhenOff ends the connection when the node loses its power, until stop. No time
// tells that: on a busy machine a node may be silent, or take no input, for long.
func (c Config) closeWhenOff(conn net.Conn) (stop func()) {
	const pause = 2 * time.Second
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(pause):
			}
			if !IsOn(c.Dir) {
				_ = conn.Close()
				return
			}
		}
	}()
	return func() { close(done) }
}

// importedDir has an empty file for each archive that containerd took, by its digest.
const importedDir = "/var/lib/containerd/imported/"

// importAttempts is how often an archive is imported whose files are damaged on the disk.
const importAttempts = 3

// archiveFiles has the files of each archive that was read, by its digest: all nodes of a lab
// import the same ones, at the same time.
var archiveFiles struct {
	sync.Mutex
	known map[string]func() ([]image.File, error)
}

// filesOf lists an archive's files, and reads it once.
func filesOf(archive, sum string) ([]image.File, error) {
	archiveFiles.Lock()
	read := archiveFiles.known[sum]
	if read == nil {
		read = sync.OnceValues(func() ([]image.File, error) { return image.Files(archive) })
		if archiveFiles.known == nil {
			archiveFiles.known = map[string]func() ([]image.File, error){}
		}
		archiveFiles.known[sum] = read
	}
	archiveFiles.Unlock()
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
	mark := importedDir + sum
	code, err := c.Run(ctx, remote.Request{Args: []string{"test", "-e", mark}}, remote.Streams{})
	if err != nil || code == 0 {
		return err
	}
	for attempt := 1; ; attempt++ {
		unpacked, err := c.unpack(ctx, file)
		if err != nil {
			return err
		}
		damage, err := c.findDamage(ctx, file, sum)
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
	// ctr waits for a socket that is missing, but not for one on which containerd does not listen yet.
	out, err := c.shell(ctx, f, `until ctr version >/dev/null 2>&1; do sleep 0.3; done
		ctr --namespace k8s.io images import -`)
	return digests.FindAllString(out, -1), err
}

// digests are in the output of "ctr images import", one for each image.
var digests = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// findDamage describes the archive's files that are not on the node's disk as they are in
// the archive. It reads the disk itself, since what is right in memory may be wrong there.
func (c Config) findDamage(ctx context.Context, file, sum string) (string, error) {
	if !c.CheckImages {
		return "", nil
	}
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
