// SPDX-License-Identifier: Apache-2.0

package uml

import (
	"strings"

	"github.com/patchbay-cni/patchbay/test/lab/guest"
)

// base are the mounts that every guest has. The guest's folder often lies in /tmp
// or /run, so it is mounted under a name of its own before those are covered.
func (c Config) base() []guest.Mount {
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
		if Covered(dir) {
			mounts = append(mounts, guest.Mount{Source: "none", Target: dir, Type: "hostfs", Data: dir, ReadOnly: true})
		}
	}
	return mounts
}

// Covered tells whether a guest has a file system of its own where a path is.
func Covered(path string) bool {
	return strings.HasPrefix(path, "/tmp/") || strings.HasPrefix(path, "/run/")
}
