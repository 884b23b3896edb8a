// SPDX-License-Identifier: Apache-2.0

// Package sysfs finds the virtual functions of PCI devices in sysfs (Documentation/PCI/pci-iov-howto.rst
// of Linux). It reads only.
package sysfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// DefaultRoot is where Linux mounts sysfs.
const DefaultRoot = "/sys"

// ErrNoFunction means that the node has no virtual function with the PCI address.
var ErrNoFunction = errors.New("no such virtual function")

// FS reads sysfs. Network interfaces are those of the network namespace in which sysfs was mounted.
type FS struct {
	// Root is the mount point.
	Root string
}

// Function is a virtual function.
type Function struct {
	// Address is the PCI address, such as 0000:03:10.2.
	Address string
	// Driver that is bound to the function, such as igbvf or vfio-pci; empty if none is.
	Driver string
	// Netdev is the function's network interface in this network namespace. It is empty for a
	// userspace driver, and if the interface is in another namespace.
	Netdev string
	// RDMADevices are the function's RDMA devices in this network namespace, such as mlx5_2.
	RDMADevices []string
	// Parent is the physical function's network interface.
	Parent string
	// ParentAddress is the PCI address of the physical function, ParentDriver its driver.
	ParentAddress, ParentDriver string
	// Index is the function's number at the physical function, from 0.
	Index int
	// Representor is the interface that represents the function in the switch of a physical function
	// in switchdev mode. It is empty in legacy mode.
	Representor string
}

// Userspace reports whether the function is bound to a driver for programs such as DPDK, and so has
// no network interface.
func (f *Function) Userspace() bool {
	return strings.Contains(f.Driver, "vfio") || strings.Contains(f.Driver, "uio")
}

// pciAddress matches domain:bus:device.function in the kernel's form.
var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// Function returns the virtual function with the PCI address. The error wraps ErrNoFunction if the
// node has none.
func (s FS) Function(address string) (*Function, error) {
	if !pciAddress.MatchString(address) {
		return nil, fmt.Errorf("device %q: %w: must be a PCI address such as 0000:03:10.2", address, ErrNoFunction)
	}
	dir := s.device(address)
	parent, err := os.Readlink(filepath.Join(dir, "physfn"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("device %s: %w on this node", address, ErrNoFunction)
	}
	if err != nil {
		return nil, fmt.Errorf("device %s: find its physical function: %w", address, err)
	}
	f := &Function{Address: address, ParentAddress: filepath.Base(parent)}
	f.Driver, f.ParentDriver = s.driver(dir), s.driver(s.device(f.ParentAddress))
	if f.Index, err = s.index(f); err != nil {
		return nil, err
	}
	if err := s.readInterfaces(f); err != nil {
		return nil, err
	}
	return f, nil
}

// Functions returns the virtual functions of the physical function with the network interface, in the
// order of their numbers.
func (s FS) Functions(netdev string) ([]*Function, error) {
	links, err := filepath.Glob(filepath.Join(s.Root, "class/net", netdev, "device/virtfn*"))
	if err != nil {
		return nil, fmt.Errorf("list virtual functions of %s: %w", netdev, err)
	}
	var found []*Function
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil {
			continue // it was removed
		}
		f, err := s.Function(filepath.Base(target))
		if errors.Is(err, ErrNoFunction) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, f)
	}
	slices.SortFunc(found, func(a, b *Function) int { return cmp.Compare(a.Index, b.Index) })
	return found, nil
}

func (s FS) device(address string) string {
	return filepath.Join(s.Root, "bus/pci/devices", address)
}

// driver returns the name of the device's driver, or "".
func (s FS) driver(dir string) string {
	target, err := os.Readlink(filepath.Join(dir, "driver"))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// index finds the function among those of its physical function.
func (s FS) index(f *Function) (int, error) {
	links, err := filepath.Glob(filepath.Join(s.device(f.ParentAddress), "virtfn*"))
	if err != nil {
		return 0, fmt.Errorf("device %s: list functions of %s: %w", f.Address, f.ParentAddress, err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err != nil || filepath.Base(target) != f.Address {
			continue
		}
		return strconv.Atoi(strings.TrimPrefix(filepath.Base(link), "virtfn"))
	}
	return 0, fmt.Errorf("device %s: %w: the physical function %s has no such function", f.Address, ErrNoFunction, f.ParentAddress)
}

// readInterfaces sets the names of interfaces.
func (s FS) readInterfaces(f *Function) error {
	if names := list(filepath.Join(s.device(f.Address), "net")); len(names) > 0 {
		f.Netdev = names[0]
	}
	f.RDMADevices = list(filepath.Join(s.device(f.Address), "infiniband"))

	// In switchdev mode, the physical function's folder has the representors of all functions, too.
	all := filepath.Join(s.device(f.ParentAddress), "net")
	for _, name := range list(all) {
		switch number, ok := representedFunction(readText(filepath.Join(all, name, "phys_port_name"))); {
		case !ok && f.Parent == "":
			f.Parent = name
		case ok && number == f.Index:
			f.Representor = name
		}
	}
	if f.Parent == "" {
		return fmt.Errorf("device %s: its physical function %s has no network interface on the node: it must be bound to the driver of its kind",
			f.Address, f.ParentAddress)
	}
	return nil
}

// representorPort matches the port name of a function's representor
// (Documentation/networking/switchdev.rst of Linux).
var representorPort = regexp.MustCompile(`^(?:c\d+)?pf\d+vf(\d+)$`)

// representedFunction returns the number of the function that the port name of a representor has.
func representedFunction(portName string) (number int, ok bool) {
	match := representorPort.FindStringSubmatch(portName)
	if match == nil {
		return 0, false
	}
	number, err := strconv.Atoi(match[1])
	return number, err == nil
}

// list returns the names in a folder, sorted; none if there is no folder.
func list(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// readText returns the content of a file without the line's end. Many attributes cannot be read for
// some devices: their value is "".
func readText(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
