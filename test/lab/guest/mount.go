// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func (m Mount) mount() error {
	if err := m.target(); err != nil {
		return err
	}
	var flags uintptr
	kind := m.Type
	switch kind {
	case "bind":
		flags, kind = unix.MS_BIND, ""
	case "rbind":
		flags, kind = unix.MS_BIND|unix.MS_REC, ""
	}
	if m.ReadOnly && kind != "" {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount(m.Source, m.Target, kind, flags, m.Data); err != nil {
		return fmt.Errorf("mount %s %s on %s: %w", m.Type, m.Source, m.Target, err)
	}
	if m.ReadOnly && kind == "" { // a bind mount takes this flag only the second time
		if err := unix.Mount("", m.Target, "", flags|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", m.Target, err)
		}
	}
	for _, f := range m.Folders {
		if err := os.MkdirAll(m.Target+"/"+f, 0o755); err != nil {
			return fmt.Errorf("prepare %s: %w", m.Target, err)
		}
	}
	return nil
}

// target makes the mount point, unless it is there already, be it folder or file.
func (m Mount) target() error {
	if _, err := os.Stat(m.Target); err == nil {
		return nil
	}
	if err := os.MkdirAll(m.Target, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	return nil
}
