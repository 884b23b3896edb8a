// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/test/lab/guest"
	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// Names in a guest's folder.
const (
	specFile    = "guest.json"
	consoleFile = "console.log"
	initFile    = "init"
)

// GuestDir is where a guest sees Config.Dir.
const GuestDir = "/run/guest"

// SerialDevice is what Config.Output is connected to in the guest.
const SerialDevice = "/dev/ttyS0"

// Kernel boots guests of one kind.
type Kernel interface {
	// Boot prepares the guest's folder and starts its kernel. The guest's console is
	// appended to ConsoleLog.
	Boot(c Config) (process.ID, error)
	// Describe returns one line for logs: the kernel's version, what runs it, and the processor.
	Describe() string
	// DiskDevice is where a guest has Config.Disks[n].
	DiskDevice(n int) string
}

// Config describes a guest.
type Config struct {
	// Dir is a folder of the guest's own, an absolute path. It appears in the guest
	// as GuestDir, writable.
	Dir string
	// Memory in MiB. The guest takes it from the machine as it touches it.
	Memory int
	// Init is a program whose main hands over to guest.Main.
	Init string
	// Spec is what the guest does. Mounts of /sys, /run, /tmp and of GuestDir are
	// added in front of its own; so are the names of Cards.
	Spec guest.Spec
	// Visible are folders of the machine that the guest needs, for the case that they
	// lie in /tmp or /run, where the guest has file systems of its own.
	Visible []string
	// Disks are image files, see Kernel.DiskDevice.
	Disks []string
	// Cards are the guest's network cards.
	Cards []Card
	// Output is the file that the guest's SerialDevice writes to.
	Output *os.File
	// Netns is the named network namespace that the taps are in.
	Netns string
	// DieWithParent ends the guest when the thread that booted it ends.
	DieWithParent bool
}

// Card is a network card of a guest.
type Card struct {
	guest.Card

	// Tap is the name of the tap interface on the machine that the card is connected to.
	// Cards without one are connected with each other (QEMU only).
	Tap string
	// SRIOV makes the card a physical function, and the guest makes its seven virtual ones at
	// boot (QEMU only).
	SRIOV bool
}

// Path returns a file in the guest's folder.
func (c Config) Path(name string) string { return filepath.Join(c.Dir, name) }

// ConsoleLog returns the path of the console's log of the guest in dir.
func ConsoleLog(dir string) string { return filepath.Join(dir, consoleFile) }

// InitPath is the path of the guest's init on the machine, and so in the guest while it boots.
func (c Config) InitPath() string { return c.Path(initFile) }

// InitArgs are the arguments of the guest's init.
func (c Config) InitArgs() []string { return []string{guest.Verb, c.Path(specFile)} }

// Share is a folder of the machine that the guest mounts.
type Share struct {
	// Dir is the folder on the machine, Target where the guest has it.
	Dir, Target string
	// ReadOnly makes the mount read-only.
	ReadOnly bool
}

// Shares are the guest's own folder, then those of Visible that are hidden.
func (c Config) Shares() []Share {
	shares := []Share{{Dir: c.Dir, Target: GuestDir}}
	for _, dir := range c.Visible {
		if HiddenInGuest(dir) {
			shares = append(shares, Share{Dir: dir, Target: dir, ReadOnly: true})
		}
	}
	return shares
}

// HiddenInGuest tells whether a guest has a file system of its own where a path is.
func HiddenInGuest(path string) bool {
	return strings.HasPrefix(path, "/tmp/") || strings.HasPrefix(path, "/run/")
}

// Prepare fills the guest's folder. The function mount tells how the guest mounts its share
// number n.
func (c Config) Prepare(mount func(n int, share Share) guest.Mount) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	// The guest runs a copy, because a build may replace the program meanwhile.
	if err := copyFile(c.Init, c.InitPath()); err != nil {
		return err
	}
	spec := c.Spec
	spec.Mounts = append(c.baseMounts(mount), spec.Mounts...)
	spec.Cards = nil
	for _, card := range c.Cards {
		spec.Cards = append(spec.Cards, card.Card)
	}
	return spec.Save(c.Path(specFile))
}

// baseMounts are the mounts that every guest has. The guest's folder often lies in /tmp
// or /run, so it is mounted under a name of its own before those are covered.
func (c Config) baseMounts(mount func(n int, share Share) guest.Mount) []guest.Mount {
	shares := c.Shares()
	mounts := []guest.Mount{
		{Source: "sysfs", Target: "/sys", Type: "sysfs"},
		{Source: "tmpfs", Target: "/run", Type: "tmpfs", Data: "mode=755", Folders: []string{
			"lock", "netns", strings.TrimPrefix(GuestDir, "/run/"),
		}},
		mount(0, shares[0]),
		{Source: "tmpfs", Target: "/tmp", Type: "tmpfs", Data: "mode=1777"},
		{Source: "devpts", Target: "/dev/pts", Type: "devpts", Data: "mode=620,ptmxmode=666"},
		{Source: "tmpfs", Target: "/dev/shm", Type: "tmpfs", Data: "mode=1777"},
	}
	for n, share := range shares[1:] {
		mounts = append(mounts, mount(n+1, share))
	}
	return mounts
}

// copyFile replaces to by a copy of an executable.
func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy program: %w", err)
	}
	defer in.Close()
	next := to + ".new"
	out, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return fmt.Errorf("copy program: %w", err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copy program %s: %w", from, err)
	}
	return os.Rename(next, to)
}

// guestNice is the priority of guests. All programs of a guest are one session, which would get as
// much of the processor as one API server. With this weight of three, three guests get a third of
// a machine on which twenty other sessions compute.
const guestNice = -5

// Start starts the program that runs the guest's kernel. Its arguments must have Mark of the
// guest's folder. What it prints is appended to ConsoleLog.
func (c Config) Start(args, env []string) (process.ID, error) {
	spec := process.Spec{
		Args:          args,
		Dir:           c.Dir,
		Env:           slices.Clone(env),
		Log:           ConsoleLog(c.Dir),
		Netns:         c.Netns,
		Nice:          guestNice,
		DieWithParent: c.DieWithParent,
	}
	if c.Output != nil {
		spec.Files = []*os.File{c.Output}
	}
	id, err := process.Start(spec)
	if err != nil {
		return process.ID{}, fmt.Errorf("boot guest: %w", err)
	}
	return id, nil
}
