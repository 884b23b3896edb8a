// SPDX-License-Identifier: Apache-2.0

package uml

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// KernelVariable chooses the kernel: KernelBuilt or KernelDebian. Unset, the built one is
// taken where there is one.
const KernelVariable = "PATCHBAY_LAB_KERNEL"

// Values of KernelVariable.
const (
	// KernelBuilt is bin/linux, which scripts/build-linux makes.
	KernelBuilt = "built"
	// KernelDebian is the fallback, from Debian's package user-mode-linux: Linux 6.1 in
	// Debian 12, 6.12 in Debian 13.
	KernelDebian = "debian"
)

// Where the parts of a kernel are. The first two are in the folder of built programs.
const (
	builtKernel   = "linux"
	builtShim     = "uml-xstate.so"
	debianKernel  = "/usr/bin/linux.uml"
	debianModules = "/usr/lib/uml/modules"
)

// Kernel is a User-Mode Linux program and what it needs to start. The zero value means no
// kernel.
type Kernel struct {
	// Program is the kernel's absolute path.
	Program string `json:"program"`
	// Options are added to the kernel's command line.
	Options []string `json:"options,omitempty"`
	// Preload is a library that is loaded into the kernel's processes; empty means none.
	Preload string `json:"preload,omitempty"`
	// ModuleFolder is the folder of the kernel's version below lib/modules; empty means
	// that all drivers are built in.
	ModuleFolder string `json:"moduleFolder,omitempty"`
}

// FindKernel returns the kernel for guests: the one in bin, the folder of built programs,
// else Debian's with the shim that lets it run on processors with AMX.
func FindKernel(bin string) (Kernel, error) {
	// The kernel starts in a folder of its own.
	bin, err := filepath.Abs(bin)
	if err != nil {
		return Kernel{}, fmt.Errorf("find kernel: %w", err)
	}
	choice := os.Getenv(KernelVariable)
	built := filepath.Join(bin, builtKernel)
	switch choice {
	case "", KernelBuilt:
		_, err := os.Stat(built)
		if err == nil {
			return Kernel{Program: built, Options: builtKernelOptions()}, nil
		}
		if choice == KernelBuilt || !errors.Is(err, fs.ErrNotExist) {
			return Kernel{}, fmt.Errorf("find kernel (scripts/build-linux builds it): %w", err)
		}
		return findDebianKernel(bin)
	case KernelDebian:
		return findDebianKernel(bin)
	default:
		return Kernel{}, fmt.Errorf("choose kernel: %s must be %q or %q, got %q", KernelVariable, KernelBuilt, KernelDebian, choice)
	}
}

// builtKernelOptions select seccomp mode, the faster one, and stop dummy, ifb and bonding
// from creating links at boot.
func builtKernelOptions() []string {
	return []string{"seccomp=on", "dummy.numdummies=0", "ifb.numifbs=0", "bonding.max_bonds=0"}
}

// findDebianKernel returns the fallback. Its drivers are modules.
func findDebianKernel(bin string) (Kernel, error) {
	shim := filepath.Join(bin, builtShim)
	for _, file := range []string{shim, debianKernel} {
		if _, err := os.Stat(file); err != nil {
			return Kernel{}, fmt.Errorf("find fallback kernel (make packages, then scripts/build-shim): %w", err)
		}
	}
	found, err := filepath.Glob(debianModules + "/*")
	if err != nil || len(found) != 1 {
		return Kernel{}, fmt.Errorf("find modules of %s: want one folder in %s, found %d", debianKernel, debianModules, len(found))
	}
	return Kernel{Program: debianKernel, Preload: shim, ModuleFolder: found[0]}, nil
}

// modules are the drivers that a kernel with modules loads for every guest.
func (k Kernel) modules() []string {
	if k.ModuleFolder == "" {
		return nil
	}
	return []string{
		"ipv6", "overlay", "8021q", "dummy", "ipvlan", "macvlan", "veth", "vxlan", "bridge", "vrf", "tun", "ifb", "bonding",
		"br_netfilter", "sch_ingress", "cls_bpf", "ip_tables", "iptable_nat", "iptable_filter", "ip6_tables", "xt_comment", "xt_MASQUERADE", "xt_mark",
	}
}

// environment is what the kernel needs beside the caller's. Guests have their memory in
// TMPDIR, which must not be a disk.
func (k Kernel) environment() []string {
	env := []string{"TMPDIR=/dev/shm"}
	if k.Preload != "" {
		env = append(env, "LD_PRELOAD="+k.Preload)
	}
	return env
}

// Version asks the kernel, for instance "7.3.4".
func (k Kernel) Version() (string, error) {
	out, err := exec.Command(k.Program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", k.Program, err)
	}
	return string(bytes.TrimSpace(out)), nil
}

// Describe returns one line for logs: the kernel's version and program, the mode in which it
// runs guests, and the processor.
func (k Kernel) Describe() string {
	version, err := k.Version()
	if err != nil {
		version = "of unknown version"
	}
	mode := "seccomp mode"
	if len(k.Options) == 0 {
		mode = "ptrace mode, the fallback"
	}
	raw, _ := os.ReadFile("/proc/cpuinfo")
	return fmt.Sprintf("Linux %s (%s, %s) on %s", version, k.Program, mode, describeProcessor(string(raw)))
}

// describeProcessor sums /proc/cpuinfo up: model, number, and the features on which the size of
// the register state depends.
func describeProcessor(cpuinfo string) string {
	model, count := "unknown processor", 0
	var features []string
	for line := range strings.Lines(cpuinfo) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "processor":
			count++
		case "model name":
			model = value
		case "flags":
			features = nil
			for f := range strings.FieldsSeq(value) {
				switch f {
				case "xsave", "avx", "avx2", "avx512f", "amx_tile", "pku":
					features = append(features, f)
				}
			}
		}
	}
	return fmt.Sprintf("%d × %s (%s)", count, model, strings.Join(features, " "))
}
