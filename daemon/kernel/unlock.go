// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// UnlockSysctls makes /proc/sys writable in the process's mount namespace. A
// runtime mounts it read-only in a container that is not privileged, although
// CAP_SYS_ADMIN and CAP_NET_ADMIN are all that the settings of a network
// namespace need. Where /proc/sys is no mount of its own it is writable already.
func UnlockSysctls() error {
	err := unix.Mount("", "/proc/sys", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("mount /proc/sys writable: %w", err)
	}
	return nil
}
