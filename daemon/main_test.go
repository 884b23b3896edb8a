// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

// insideVariable is set in the process with namespaces of its own.
const insideVariable = "PATCHBAYD_TEST_INSIDE"

// TestMain runs the tests in network and mount namespaces of their own, because the daemon changes links
// and sysctls, and the network namespaces of Pods are mounts.
func TestMain(m *testing.M) {
	if os.Getenv(insideVariable) == "" {
		os.Exit(reexec())
	}
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "prepare namespaces:", err)
		os.Exit(1)
	}
	apitest.Main(m)
}

// reexec executes this binary in new namespaces and returns its exit code.
func reexec() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "start in namespaces of its own (needs root):", err)
		return 1
	}
	return 0
}

// prepare sets up loopback, a NIC "ens4" and an empty folder of named network namespaces.
func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run/netns", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /run/netns: %w", err)
	}
	return errors.Join(
		ip("link", "set", "lo", "up"),
		ip("link", "add", "ens4", "type", "veth", "peer", "name", "switch"),
		ip("link", "set", "switch", "up"),
		ip("link", "set", "ens4", "up"),
	)
}

// ip runs iproute2.
func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %v: %w: %s", args, err, out)
	}
	return nil
}
