// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// dadRetransMillis is how long duplicate address detection waits for an answer to its
	// probe. RFC 4862 (5.1) leaves it to configuration. The default of a second would
	// dominate the start of a Pod.
	dadRetransMillis = "200"
	// defaultRetransMillis is the kernel's default, which is restored after the detection.
	defaultRetransMillis = "1000"
)

// sysctl is a setting below /proc/sys/net in the namespace of the thread.
type sysctl struct{ path, value string }

// write sets the value. On a kernel without IPv6, disabling IPv6 succeeds.
func (s sysctl) write() error {
	fd, err := unix.Open("/proc/sys/net/"+s.path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) && s.value == "1" && kernelHasNoIPv6() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open sysctl net/%s: %w", s.path, err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(s.value)); err != nil {
		return fmt.Errorf("set sysctl net/%s to %s: %w", s.path, s.value, err)
	}
	return nil
}

func kernelHasNoIPv6() bool {
	return errors.Is(unix.Access("/proc/sys/net/ipv6", unix.F_OK), unix.ENOENT)
}

func disableIPv6(name string) sysctl {
	return sysctl{"ipv6/conf/" + name + "/disable_ipv6", "1"}
}

// RemountSysctlsWritable makes /proc/sys writable in the process's mount namespace. Runtimes mount
// it read-only in a container that is not privileged, although CAP_SYS_ADMIN and CAP_NET_ADMIN
// suffice for the settings of a network namespace. If /proc/sys is not a mount of its own, it is
// writable already.
func RemountSysctlsWritable() error {
	err := unix.Mount("", "/proc/sys", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("mount /proc/sys writable: %w", err)
	}
	return nil
}
