// SPDX-License-Identifier: Apache-2.0

package uml

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/patchbay-cni/patchbay/test/lab/guest"
	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/lab/vm"
)

// moduleDir is a folder in the guest's folder.
const moduleDir = "modroot"

// nicFormat is a network card, by number, tap and MAC address. The driver tells the tap that
// it takes segments of 64 KiB; only with gro=1 does it have the buffers for them, and
// without them most of a fast TCP stream is lost.
const nicFormat = "vec%d:transport=tap,ifname=%s,depth=64,gro=1,mac=%s"

// Boot implements vm.Kernel. Guests have their memory in /dev/shm.
func (k Kernel) Boot(c vm.Config) (process.ID, error) {
	if err := k.prepare(c); err != nil {
		return process.ID{}, fmt.Errorf("prepare guest: %w", err)
	}
	return c.Start(k.args(c), k.environment())
}

// DiskDevice implements vm.Kernel.
func (k Kernel) DiskDevice(n int) string { return "/dev/ubd" + string(rune('a'+n)) }

// args returns the kernel's command line.
func (k Kernel) args(c vm.Config) []string {
	args := []string{
		k.Program,
		vm.Mark(c.Dir), // the kernel passes it on to init, as a variable
		"mem=" + fmt.Sprint(c.Memory) + "M",
		"uml_dir=" + c.Dir + "/", "umid=uml",
		"root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
		"con=null", "con0=null,fd:1", "ssl=null", "quiet",
		// A guest that hangs is worse than one that ends.
		"panic=-1", "oops=panic", "noreboot",
		"init=" + c.InitPath(),
	}
	args = append(args, k.Options...)
	if c.Output != nil {
		args = append(args, "ssl0=null,fd:3")
	}
	for i, d := range c.Disks {
		args = append(args, fmt.Sprintf("ubd%d=%s", i, d))
	}
	for i, card := range c.Cards {
		args = append(args, fmt.Sprintf(nicFormat, i, card.Tap, card.MAC))
	}
	return append(append(args, "--"), c.InitArgs()...)
}

// prepare fills the guest's folder.
func (k Kernel) prepare(c vm.Config) error {
	if k.ModuleFolder != "" {
		if err := k.linkModules(c.Path(moduleDir)); err != nil {
			return err
		}
		c.Spec.ModuleRoot, c.Spec.Modules = c.Path(moduleDir), k.modules()
	}
	return c.Prepare(func(_ int, s vm.Share) guest.Mount {
		return guest.Mount{Source: "none", Target: s.Target, Type: "hostfs", Data: s.Dir, ReadOnly: s.ReadOnly}
	})
}

// linkModules makes the folder that modprobe expects.
func (k Kernel) linkModules(dir string) error {
	tree := filepath.Join(dir, "lib", "modules")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return fmt.Errorf("make module folder: %w", err)
	}
	link := filepath.Join(tree, filepath.Base(k.ModuleFolder))
	if err := os.Symlink(k.ModuleFolder, link); err != nil && !os.IsExist(err) {
		return fmt.Errorf("link modules: %w", err)
	}
	return nil
}
