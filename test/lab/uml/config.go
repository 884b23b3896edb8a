// SPDX-License-Identifier: Apache-2.0

package uml

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/patchbay-cni/patchbay/test/lab/guest"
)

// Names in a guest's folder.
const (
	specFile    = "guest.json"
	consoleFile = "console.log"
	initFile    = "init"
	moduleDir   = "modroot"
)

// Config describes a guest.
type Config struct {
	// Kernel to boot, from FindKernel.
	Kernel Kernel
	// Dir is a folder of the guest's own, an absolute path. It appears in the guest
	// as GuestDir, writable.
	Dir string
	// Memory in MiB. It is taken from /dev/shm as the guest touches it.
	Memory int
	// Init is a program whose main hands over to guest.Main.
	Init string
	// Spec says what the guest does. Mounts of /sys, /run, /tmp and of GuestDir are
	// added in front of its own.
	Spec guest.Spec
	// Visible are folders of the machine that the guest needs, for the case that they
	// lie in /tmp or /run, where the guest has file systems of its own.
	Visible []string
	// Disks are image files, /dev/ubda and so on in the guest.
	Disks []string
	// Taps are names of tap interfaces, vec0 and so on in the guest.
	Taps []Tap
	// Output is the file that the guest's /dev/ttyS0 writes to.
	Output *os.File
	// Netns is the named network namespace that the taps are in.
	Netns string
	// DieWithParent ends the guest when the thread that booted it ends.
	DieWithParent bool
}

// Tap is a network card of a guest.
type Tap struct {
	// Name of the tap interface on the machine.
	Name string
	// MAC address that the guest gives to the card.
	MAC string
}

// GuestDir is where a guest sees Config.Dir.
const GuestDir = "/run/guest"

// SerialDevice is what Config.Output is connected to in the guest.
const SerialDevice = "/dev/ttyS0"

// nicFormat is a network card, by number, tap and MAC address. The driver tells the tap that
// it takes segments of 64 KiB; only with gro=1 does it have the buffers for them, and
// without them most of a fast TCP stream is lost.
const nicFormat = "vec%d:transport=tap,ifname=%s,depth=64,gro=1,mac=%s"

func (c Config) path(name string) string { return filepath.Join(c.Dir, name) }

// args returns the kernel's command line.
func (c Config) args() []string {
	args := []string{
		c.Kernel.Program,
		"mem=" + fmt.Sprint(c.Memory) + "M",
		"uml_dir=" + c.Dir + "/", "umid=uml",
		"root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
		"con=null", "con0=null,fd:1", "ssl=null", "quiet",
		// A guest that hangs is worse than one that ends.
		"panic=-1", "oops=panic", "noreboot",
		"init=" + c.path(initFile),
	}
	args = append(args, c.Kernel.Options...)
	if c.Output != nil {
		args = append(args, "ssl0=null,fd:3")
	}
	for i, d := range c.Disks {
		args = append(args, fmt.Sprintf("ubd%d=%s", i, d))
	}
	for i, t := range c.Taps {
		args = append(args, fmt.Sprintf(nicFormat, i, t.Name, t.MAC))
	}
	return append(args, "--", guest.Verb, c.path(specFile))
}

// prepare fills the guest's folder.
func (c Config) prepare() error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	// A copy, since the program may be built anew while the guest runs.
	if err := copyFile(c.Init, c.path(initFile)); err != nil {
		return err
	}
	spec := c.Spec
	if c.Kernel.ModuleFolder != "" {
		if err := c.linkModules(); err != nil {
			return err
		}
		spec.ModuleRoot, spec.Modules = c.path(moduleDir), c.Kernel.modules()
	}
	spec.Mounts = append(c.baseMounts(), spec.Mounts...)
	return spec.Save(c.path(specFile))
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

// linkModules makes the folder that modprobe expects.
func (c Config) linkModules() error {
	tree := c.path(moduleDir + "/lib/modules")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return fmt.Errorf("make module folder: %w", err)
	}
	link := filepath.Join(tree, filepath.Base(c.Kernel.ModuleFolder))
	if err := os.Symlink(c.Kernel.ModuleFolder, link); err != nil && !os.IsExist(err) {
		return fmt.Errorf("link modules: %w", err)
	}
	return nil
}

// baseMounts are the mounts that every guest has. The guest's folder often lies in /tmp
// or /run, so it is mounted under a name of its own before those are covered.
func (c Config) baseMounts() []guest.Mount {
	mounts := []guest.Mount{
		{Source: "sysfs", Target: "/sys", Type: "sysfs"},
		{Source: "tmpfs", Target: "/run", Type: "tmpfs", Data: "mode=755", Folders: []string{
			"lock", "netns", strings.TrimPrefix(GuestDir, "/run/"),
		}},
		{Source: "none", Target: GuestDir, Type: "hostfs", Data: c.Dir},
		{Source: "tmpfs", Target: "/tmp", Type: "tmpfs", Data: "mode=1777"},
		{Source: "devpts", Target: "/dev/pts", Type: "devpts", Data: "mode=620,ptmxmode=666"},
		{Source: "tmpfs", Target: "/dev/shm", Type: "tmpfs", Data: "mode=1777"},
	}
	for _, dir := range c.Visible {
		if HiddenInGuest(dir) {
			mounts = append(mounts, guest.Mount{Source: "none", Target: dir, Type: "hostfs", Data: dir, ReadOnly: true})
		}
	}
	return mounts
}

// HiddenInGuest tells whether a guest has a file system of its own where a path is.
func HiddenInGuest(path string) bool {
	return strings.HasPrefix(path, "/tmp/") || strings.HasPrefix(path, "/run/")
}
