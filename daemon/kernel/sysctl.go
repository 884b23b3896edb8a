// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// probeMillis is how long duplicate address detection listens for an answer
	// to its probe. RFC 4862 (5.1) leaves it to configuration; its default of a
	// second would be most of a Pod's start.
	probeMillis = "200"
	// retransMillis is the kernel's default, for everything after the detection.
	retransMillis = "1000"
)

// sysctl is a setting below /proc/sys/net of the thread's namespace.
type sysctl struct{ path, value string }

// setSysctls prepares an interface that has no address yet.
func setSysctls(s *Slave) error {
	for _, set := range s.sysctls() {
		if err := set.write(); err != nil {
			return err
		}
	}
	return nil
}

// sysctls are the settings of the slave, before its first address.
func (s *Slave) sysctls() []sysctl {
	v6 := "ipv6/conf/" + s.Name + "/"
	var all []sysctl
	if s.V4.IsValid() {
		// The kernel sends a gratuitous ARP whenever the link comes up: peers
		// forget who had the address before.
		all = append(all, sysctl{"ipv4/conf/" + s.Name + "/arp_notify", "1"})
	}
	if !s.V6.IsValid() {
		return append(all, disableIPv6(s.Name))
	}
	return append(all,
		sysctl{v6 + "disable_ipv6", "0"},
		// Addresses and routes are the network object's, not a router's.
		sysctl{v6 + "accept_ra", "0"},
		// The unsolicited neighbour advertisement that answers to arp_notify.
		sysctl{v6 + "ndisc_notify", "1"},
		// Without router solicitations the random delay of up to a second
		// before the first probe (RFC 4862, 5.4.2) protects nobody.
		sysctl{v6 + "router_solicitation_delay", "0"},
		sysctl{"ipv6/neigh/" + s.Name + "/retrans_time_ms", probeMillis},
	)
}

func disableIPv6(name string) sysctl {
	return sysctl{"ipv6/conf/" + name + "/disable_ipv6", "1"}
}

// write sets the value. A kernel without IPv6 has it disabled already.
func (s sysctl) write() error {
	fd, err := unix.Open("/proc/sys/net/"+s.path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) && s.value == "1" && noIPv6() {
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

func noIPv6() bool {
	return errors.Is(unix.Access("/proc/sys/net/ipv6", unix.F_OK), unix.ENOENT)
}
