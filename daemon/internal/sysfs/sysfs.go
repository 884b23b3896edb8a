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

var (
	// ErrNoFunction means that the node has no virtual function with the PCI address.
	ErrNoFunction = errors.New("no such virtual function")
	// ErrNoParent means that the physical function has no network interface, through which its functions are set.
	ErrNoParent = errors.New("no network interface of the physical function")
	// ErrUserspaceParent means that a program drives the physical function, as with vfio-pci. Nothing on the node
	// keeps settings of its functions.
	ErrUserspaceParent = errors.New("a userspace driver has the physical function")
)

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
	// OtherNetdevs are further network interfaces of a function with several ports, as of mlx4.
	OtherNetdevs []string
	// NetdevElsewhere means that the function's network interface is in another network namespace.
	NetdevElsewhere bool
	// RDMADevices are the function's RDMA devices in this network namespace, such as mlx5_2.
	RDMADevices []string
	// RDMAElsewhere means that an RDMA device of the function is in another network namespace.
	RDMAElsewhere bool
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
func (f *Function) Userspace() bool { return isUserspace(f.Driver) }

// isUserspace reports whether a driver is one for programs: vfio-pci and its variants of vendors, such as
// mlx5_vfio_pci, or uio_pci_generic and igb_uio.
func isUserspace(driver string) bool {
	return strings.Contains(driver, "vfio") || strings.Contains(driver, "uio")
}

// pciAddress matches domain:bus:device.function in the kernel's form.
var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// Function returns the virtual function with the PCI address. The error wraps ErrNoFunction if the
// node has none.
func (s FS) Function(address string) (*Function, error) {
	if !pciAddress.MatchString(address) {
		return nil, fmt.Errorf("device %q: %w: must be a PCI address such as 0000:03:10.2", address, ErrNoFunction)
	}
	target, err := os.Readlink(filepath.Join(s.device(address), "physfn"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("device %s: %w on this node", address, ErrNoFunction)
	}
	if err != nil {
		return nil, fmt.Errorf("device %s: find its physical function: %w", address, err)
	}
	parent := s.physicalFunction(filepath.Base(target))
	index, err := s.index(address, parent.address)
	if err != nil {
		return nil, err
	}
	if err := parent.check(); err != nil {
		return nil, fmt.Errorf("device %s: %w", address, err)
	}
	return s.function(parent, address, index), nil
}

// Functions returns the virtual functions of the physical function with the network interface, in the
// order of their numbers. It reads some files per function, and those of the physical function once.
func (s FS) Functions(netdev string) ([]*Function, error) {
	address := s.Address(netdev)
	if address == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(s.device(address))
	if err != nil {
		return nil, fmt.Errorf("list virtual functions of %s: %w", netdev, err)
	}
	parent := s.physicalFunction(address)
	var found []*Function
	for _, entry := range entries {
		number, ok := strings.CutPrefix(entry.Name(), "virtfn")
		index, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue
		}
		target, err := os.Readlink(filepath.Join(s.device(address), entry.Name()))
		if err != nil {
			continue // it was removed
		}
		found = append(found, s.function(parent, filepath.Base(target), index))
	}
	slices.SortFunc(found, func(a, b *Function) int { return cmp.Compare(a.Index, b.Index) })
	return found, nil
}

// Address returns the PCI address of the device with the network interface, or "".
func (s FS) Address(netdev string) string {
	target, err := os.Readlink(filepath.Join(s.Root, "class/net", netdev, "device"))
	if address := filepath.Base(target); err == nil && pciAddress.MatchString(address) {
		return address
	}
	return ""
}

// IsRepresentor reports whether the network interface represents a function in the switch of a network
// card. It has the device of the physical function.
func (s FS) IsRepresentor(netdev string) bool {
	return representorPort.MatchString(readText(filepath.Join(s.Root, "class/net", netdev, "phys_port_name")))
}

// physicalFunction is what the virtual functions of one physical function have in common.
type physicalFunction struct {
	// address, driver and netdev become ParentAddress, ParentDriver and Parent of a Function.
	address, driver, netdev string
	// representors are the interfaces that represent functions, by the functions' numbers.
	representors map[int]string
}

// check returns an error if the functions cannot be set.
func (p *physicalFunction) check() error {
	switch {
	case p.netdev != "":
		return nil
	case isUserspace(p.driver):
		return fmt.Errorf("%w: %s is bound to %s: bind it to the driver of its kind", ErrUserspaceParent, p.address, p.driver)
	case p.driver == "":
		return fmt.Errorf("%w: %s is bound to no driver: bind it to the driver of its kind", ErrNoParent, p.address)
	}
	return fmt.Errorf("%w: %s (driver %s) has none on the node: if its driver does not restart, its interface must be in the node's network namespace",
		ErrNoParent, p.address, p.driver)
}

func (s FS) physicalFunction(address string) *physicalFunction {
	dir := s.device(address)
	p := &physicalFunction{address: address, driver: s.driver(dir), representors: map[int]string{}}
	// In switchdev mode, the folder has the representors of all functions, too.
	for _, name := range list(filepath.Join(dir, "net")) {
		port := representorPort.FindStringSubmatch(readText(filepath.Join(dir, "net", name, "phys_port_name")))
		if port == nil {
			p.netdev = cmp.Or(p.netdev, name)
		} else if index, err := strconv.Atoi(port[1]); err == nil {
			p.representors[index] = name
		}
	}
	return p
}

// representorPort matches the port name of a representor, with the number of its virtual function
// (Documentation/networking/representors.rst of Linux). Subfunctions have representors, too.
var representorPort = regexp.MustCompile(`^(?:c\d+)?pf\d+(?:vf(\d+)|sf\d+)$`)

// function reads the function with the number.
func (s FS) function(parent *physicalFunction, address string, index int) *Function {
	dir := s.device(address)
	f := &Function{
		Address: address, Driver: s.driver(dir), RDMADevices: list(filepath.Join(dir, "infiniband")),
		Parent: parent.netdev, ParentAddress: parent.address, ParentDriver: parent.driver,
		Index: index, Representor: parent.representors[index],
	}
	names := list(filepath.Join(dir, "net"))
	if len(names) > 0 {
		f.Netdev = names[0]
	}
	if len(names) > 1 {
		f.OtherNetdevs = names[1:]
	}
	if f.Netdev == "" {
		// The kernel shows the folder without the interfaces of other namespaces. Without any, there is no folder.
		_, err := os.Stat(filepath.Join(dir, "net"))
		f.NetdevElsewhere = err == nil
	}
	f.RDMAElsewhere = isRDMAElsewhere(dir, len(f.RDMADevices))
	return f
}

// isRDMAElsewhere reports whether the device has more RDMA devices than those that this network namespace shows.
// As for interfaces, the folder infiniband is there without those of other namespaces. The devices for programs,
// in infiniband_verbs, belong to no namespace: there is one for each RDMA device once ib_uverbs is loaded.
func isRDMAElsewhere(dir string, shown int) bool {
	if _, err := os.Stat(filepath.Join(dir, "infiniband")); err != nil {
		return false
	}
	return shown == 0 || shown < len(list(filepath.Join(dir, "infiniband_verbs")))
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
func (s FS) index(address, parent string) (int, error) {
	links, err := filepath.Glob(filepath.Join(s.device(parent), "virtfn*"))
	if err != nil {
		return 0, fmt.Errorf("device %s: list functions of %s: %w", address, parent, err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err != nil || filepath.Base(target) != address {
			continue
		}
		return strconv.Atoi(strings.TrimPrefix(filepath.Base(link), "virtfn"))
	}
	return 0, fmt.Errorf("device %s: %w: the physical function %s has no such function", address, ErrNoFunction, parent)
}

// list returns the names in a folder, sorted; none if there is no folder.
func list(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
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
