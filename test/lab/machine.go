// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// ErrMachine says that a lab cannot run on this machine as it is.
var ErrMachine = errors.New("this machine cannot run a lab")

// programs are what the lab and its nodes execute; scripts/install-packages brings them.
func programs() []string {
	return []string{
		"containerd", "ctr", "runc", "etcd", "mkfs.ext4", "ip", "nft", "nsenter", "sysctl", "modprobe",
		"/usr/lib/cni/bridge", "/usr/lib/cni/host-local", "/usr/bin/busybox",
	}
}

// checkMachine says at once what would fail minutes later, in a place hard to find.
func (c Config) checkMachine() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: not run by root, whom a network namespace needs", ErrMachine)
	}
	for _, name := range programs() {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w (make packages): %w", ErrMachine, err)
		}
	}
	return c.checkMemory("/dev/shm")
}

// checkMemory looks at the file system that guests take their memory from. When it is
// full they die of SIGBUS.
func (c Config) checkMemory(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	const mebi = 1 << 20
	size, need := int64(s.Blocks)*s.Bsize/mebi, int64(c.Nodes)*int64(c.Memory)
	if size < need {
		return fmt.Errorf("%w: %s has %d MiB, %d nodes of %d MiB need %d", ErrMachine, dir, size, c.Nodes, c.Memory, need)
	}
	return nil
}
