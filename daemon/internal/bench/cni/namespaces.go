// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// parentLink is the parent of all MACVLAN links. It is one end of a veth pair, because not all kernels have
// dummy links.
const parentLink = "uplink"

// runIsolated runs the program again in network and mount namespaces of its own. The kernel removes all its
// links and mounts at the end.
func runIsolated(ctx context.Context, o options, args []string, out io.Writer) (err error) {
	// A folder on disk, like those of the journal and of host-local on a node.
	dir, err := os.MkdirTemp("/var/tmp", "patchbay-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, program := range []*string{&o.plugin, &o.daemon} {
		if *program, err = filepath.Abs(*program); err != nil {
			return err
		}
	}
	inner := selfCommand(ctx, append(args, "-stage", stageInner, "-dir", dir, "-plugin", o.plugin, "-daemon", o.daemon)...)
	inner.Stdout = out
	inner.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	if err := inner.Run(); err != nil {
		return fmt.Errorf("run in new namespaces (needs root): %w", err)
	}
	return nil
}

// selfCommand returns a command that runs this program with other arguments. It gets SIGTERM when ctx ends.
func selfCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd
}

// createHost creates the parent link and n network namespaces of Pods. It returns their paths.
func createHost(dir string, n int) ([]string, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: parentLink}, PeerName: parentLink + "-peer"}
	if err := netlink.LinkAdd(veth); err != nil {
		return nil, fmt.Errorf("add %s: %w", parentLink, err)
	}
	for _, name := range []string{"lo", parentLink, parentLink + "-peer"} {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			return nil, fmt.Errorf("set %s up: %w", name, err)
		}
	}
	pods := make([]string, n)
	for i := range pods {
		pods[i] = filepath.Join(dir, "pod-"+strconv.Itoa(i))
		if err := pinNetns(pods[i]); err != nil {
			return nil, fmt.Errorf("create network namespace of Pod %d: %w", i, err)
		}
	}
	return pods, nil
}

// pinNetns creates a network namespace and mounts it at path, as runtimes do.
func pinNetns(path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		ns, err := netns.New()
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
			err = errors.Join(err, ns.Close())
		}
		done <- err
	}()
	return <-done
}
