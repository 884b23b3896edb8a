// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

// nic describes a link that is not ours. Only cards and bonds have a driver and
// a speed worth reading: a node has hundreds of cable ends of Pods.
func (s *reading) nic(l *hostLink) netwatcher.NIC {
	a := l.Attrs()
	n := netwatcher.NIC{
		Name: a.Name, Kind: l.kind(), MAC: a.HardwareAddr.String(), MTU: a.MTU,
		Up: a.Flags&net.FlagUp != 0, Addresses: l.global, Untagged: l.untagged,
	}
	n.NoCarrier = n.Up && a.RawFlags&unix.IFF_LOWER_UP == 0
	if master := s.byIndex[a.MasterIndex]; master != nil {
		n.Master, n.MasterKind = master.Attrs().Name, master.kind()
	}
	if n.Kind == "" || n.Kind == "bond" {
		dir := filepath.Join("/sys/class/net", a.Name)
		n.VF = virtualFunction(dir)
		n.Speed = max(0, number(dir, "speed")) // -1: not known
		n.TotalVFs = number(dir, "device/sriov_totalvfs")
		n.NumVFs = number(dir, "device/sriov_numvfs")
		if driver, err := os.Readlink(filepath.Join(dir, "device/driver")); err == nil {
			n.Driver = filepath.Base(driver)
		}
	}
	return n
}

// virtualFunction reports whether the device of a NIC names a card that it is a part of.
func virtualFunction(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, "device/physfn"))
	return err == nil
}

// kind is the kernel's link kind; the library says "device" when there is none.
func (l *hostLink) kind() string {
	if kind := l.Type(); kind != "device" {
		return kind
	}
	return ""
}

// number reads a number from sysfs; 0 when it is not there.
func number(dir, file string) int {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return n
}
