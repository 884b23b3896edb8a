// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/patchbay-cni/patchbay/test/lab/remote"
	"github.com/patchbay-cni/patchbay/test/lab/uml"
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
	if !On(c.Dir) {
		if err := c.boot(ctx); err != nil {
			return fmt.Errorf("boot %s: %w", c.Name, err)
		}
	}
	if err := c.await(ctx); err != nil {
		return fmt.Errorf("boot %s: %w", c.Name, err)
	}
	return nil
}

func (c Config) boot(ctx context.Context) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	_, err := uml.Boot(uml.Config{
		Kernel: c.Kernel, Dir: c.Dir, Memory: c.Memory, Init: c.Init, Spec: c.guest(),
		Visible: []string{c.Bin}, Disks: []string{c.Disk}, Taps: c.taps(), Netns: c.Fabric.Netns,
	})
	return err
}

func (c Config) taps() []uml.Tap {
	var taps []uml.Tap
	for _, card := range c.Port.Cards() {
		taps = append(taps, uml.Tap{Name: card.Tap, MAC: card.MAC})
	}
	return taps
}

// prepare makes what is missing and ends what a kernel that died left running.
func (c Config) prepare(ctx context.Context) error {
	if err := uml.Kill(ctx, c.Dir); err != nil {
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

// await polls the agent until it runs a command.
func (c Config) await(ctx context.Context) error {
	const pause = 50 * time.Millisecond
	for {
		_, err := c.Run(ctx, remote.Request{Args: []string{"true"}}, remote.Streams{})
		if err == nil || errors.Is(err, remote.ErrNotStarted) {
			return err
		}
		if !On(c.Dir) {
			console, _ := os.ReadFile(uml.ConsoleLog(c.Dir))
			return fmt.Errorf("%w; its console:\n%s", ErrDied, console)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w (last answer: %w)", ctx.Err(), err)
		}
	}
}

// On tells whether the node of that folder is switched on.
func On(dir string) bool {
	pids, err := uml.Processes(dir)
	return err == nil && len(pids) > 0
}

// Kill cuts the node's power. A node that is off is fine.
func Kill(ctx context.Context, dir string) error { return uml.Kill(ctx, dir) }
