// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/lab/netns"
	"github.com/patchbay-cni/patchbay/test/lab/vm"
)

// Down ends the lab of that name and removes all that belongs to it, whatever state
// it is in. No lab is fine.
func Down(ctx context.Context, name string) error {
	config, err := Config{Name: name}.named()
	if err != nil {
		return err
	}
	unlock, err := config.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := config.down(ctx); err != nil {
		return fmt.Errorf("end lab %s: %w", config.Name, err)
	}
	return nil
}

// down goes on after an error, so that as much as possible is removed.
func (c Config) down(ctx context.Context) error {
	errs := []error{c.wipe(ctx), os.RemoveAll(c.dir())}
	_ = os.Remove(diskDir) // the last lab removes the folders of all
	_ = os.Remove(runDir)
	return errors.Join(errs...)
}

// wipe removes everything but the lab's folder itself.
func (c Config) wipe(ctx context.Context) error {
	errs := []error{c.killNodes(ctx), c.killPlane(ctx)}
	// What is in the namespace belongs to the lab, even if no file says so any more.
	errs = append(errs,
		netns.KillProcesses(ctx, c.fabric().Netns),
		c.fabric().Delete(),
		os.RemoveAll(c.disks()),
		os.RemoveAll(c.path(nodesDir)),
		os.RemoveAll(c.path(planeDir)),
	)
	return errors.Join(errs...)
}

func (c Config) killNodes(ctx context.Context) error {
	nodes, err := c.nodes()
	errs := []error{err}
	for _, name := range nodes {
		errs = append(errs, vm.Kill(ctx, c.nodeDir(name)))
	}
	return errors.Join(errs...)
}

func (c Config) killPlane(ctx context.Context) error {
	plane, err := controlplane.Open(c.path(planeDir))
	if err == nil {
		return plane.Kill(ctx, plane.Parts()...)
	}
	return nil // none, or one that broke while it was made: emptying the namespace is enough
}

// Leftovers lists what there is of a lab: processes, its network namespace (and so its
// links), mounts and folders. After Down it is empty.
func Leftovers(name string) ([]string, error) {
	config, err := Config{Name: name}.named()
	if err != nil {
		return nil, err
	}
	var left []string
	if netns.Exists(config.fabric().Netns) {
		left = append(left, "network namespace "+config.fabric().Netns)
	}
	for _, dir := range []string{config.dir(), config.disks()} {
		if _, err := os.Stat(dir); err == nil {
			left = append(left, "folder "+dir)
		}
	}
	mounts, err := config.mounts()
	if err != nil {
		return nil, err
	}
	processes, err := config.processes()
	if err != nil {
		return nil, err
	}
	return append(append(left, mounts...), processes...), nil
}

func (c Config) mounts() ([]string, error) {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var found []string
	for line := range strings.Lines(string(raw)) {
		if c.mentionedIn(strings.Fields(line)) || strings.Contains(line, netns.Path(c.fabric().Netns)+" ") {
			found = append(found, "mount "+strings.TrimSpace(line))
		}
	}
	return found, nil
}

// processes have the lab's folders on their command line, all but this one's.
func (c Config) processes() ([]string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []string
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // it ended meanwhile
		}
		args := strings.FieldsFunc(string(bytes.TrimRight(raw, "\x00")), func(r rune) bool { return r == 0 || r == '=' })
		if c.mentionedIn(args) && file != fmt.Sprintf("/proc/%d/cmdline", os.Getpid()) {
			found = append(found, "process "+strings.TrimSuffix(strings.TrimPrefix(file, "/proc/"), "/cmdline")+" "+args[0])
		}
	}
	return found, nil
}

// mentionedIn tells whether a word is a path of the lab's.
func (c Config) mentionedIn(words []string) bool {
	for _, w := range words {
		for _, dir := range []string{c.dir(), c.disks()} {
			if w == dir || strings.HasPrefix(w, dir+"/") || strings.HasPrefix(w, "unix://"+dir+"/") {
				return true
			}
		}
	}
	return false
}
