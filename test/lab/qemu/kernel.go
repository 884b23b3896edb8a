// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Kernel is Debian's kernel with the QEMU that it runs in.
type Kernel struct {
	// Dir is the folder that scripts/install-sriov made.
	Dir string `json:"dir"`
	// Release is the kernel's, for instance "6.12.95+deb12-amd64".
	Release string `json:"release"`
}

// installed is the link in the folder of built programs to Kernel.Dir.
const installed = "qemu"

// FindKernel returns the kernel and QEMU in bin, the folder of built programs.
func FindKernel(bin string) (Kernel, error) {
	const advice = "scripts/install-sriov gets it"
	dir, err := filepath.EvalSymlinks(filepath.Join(bin, installed))
	if err != nil {
		return Kernel{}, fmt.Errorf("find QEMU (%s): %w", advice, err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return Kernel{}, fmt.Errorf("find QEMU: %w", err)
	}
	k := Kernel{Dir: dir}
	for _, file := range []string{k.program(), k.image()} {
		if _, err := os.Stat(file); err != nil {
			return Kernel{}, fmt.Errorf("find QEMU and its kernel (%s): %w", advice, err)
		}
	}
	releases, err := filepath.Glob(filepath.Join(dir, "lib/modules/*"))
	if err != nil || len(releases) != 1 {
		return Kernel{}, fmt.Errorf("find modules of %s (%s): want one folder in lib/modules, found %d", dir, advice, len(releases))
	}
	k.Release = filepath.Base(releases[0])
	return k, nil
}

func (k Kernel) program() string { return filepath.Join(k.Dir, "usr/bin/qemu-system-x86_64") }

func (k Kernel) image() string { return filepath.Join(k.Dir, "vmlinuz") }

// moduleTree is the folder in which modules.dep has its paths.
func (k Kernel) moduleTree() string { return filepath.Join(k.Dir, "lib/modules", k.Release) }

// environment lets QEMU find the libraries that came with it.
func (k Kernel) environment() []string {
	return []string{"LD_LIBRARY_PATH=" + k.Dir + "/usr/lib/x86_64-linux-gnu:" + k.Dir + "/lib/x86_64-linux-gnu"}
}

// DiskDevice implements vm.Kernel.
func (k Kernel) DiskDevice(n int) string { return "/dev/vd" + string(rune('a'+n)) }

// Describe implements vm.Kernel.
func (k Kernel) Describe() string {
	cmd := exec.Command(k.program(), "--version")
	cmd.Env = append(os.Environ(), k.environment()...)
	out, err := cmd.Output()
	version := parseVersion(string(out))
	if err != nil || version == "" {
		version = "of unknown version"
	}
	return fmt.Sprintf("Linux %s in QEMU %s (%s), which simulates the processor", k.Release, version, k.Dir)
}

// parseVersion finds "10.0.2" in "QEMU emulator version 10.0.2 (Debian …)".
func parseVersion(out string) string {
	_, version, _ := strings.Cut(out, " version ")
	fields := strings.Fields(version)
	if len(fields) == 0 {
		return ""
	}
	return fields[0]
}
