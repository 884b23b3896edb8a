// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// sysfs reads PCI devices from a mount of sysfs.
type sysfs string

// devices returns the functions of a resource as kubelet's devices, in the order of their PCI addresses.
// Functions that are given by address are unhealthy while they do not exist.
func (s sysfs) devices(r Resource) ([]*pluginapi.Device, error) {
	addresses := slices.Clone(r.Functions)
	for _, netdev := range r.PhysicalFunctions {
		functions, err := s.virtualFunctions(netdev)
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, functions...)
	}
	slices.Sort(addresses)
	devices := make([]*pluginapi.Device, 0, len(addresses))
	for _, address := range slices.Compact(addresses) {
		devices = append(devices, s.device(address))
	}
	return devices, nil
}

// virtualFunctions returns the PCI addresses of a physical function's virtual functions: those that the
// links virtfn0, virtfn1, … lead to.
func (s sysfs) virtualFunctions(netdev string) ([]string, error) {
	device := filepath.Join(string(s), "class/net", netdev, "device")
	if _, err := os.Stat(filepath.Join(device, "sriov_numvfs")); err != nil {
		return nil, fmt.Errorf("netdev %s: must be a physical function: %w", netdev, err)
	}
	links, err := filepath.Glob(filepath.Join(device, "virtfn*"))
	if err != nil {
		return nil, fmt.Errorf("netdev %s: list virtual functions: %w", netdev, err)
	}
	addresses := make([]string, 0, len(links))
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil {
			return nil, fmt.Errorf("netdev %s: read a virtual function: %w", netdev, err)
		}
		addresses = append(addresses, filepath.Base(target))
	}
	return addresses, nil
}

// device returns a function as kubelet's device. Its NUMA node is left out if the machine has none.
func (s sysfs) device(address string) *pluginapi.Device {
	d := &pluginapi.Device{ID: address, Health: pluginapi.Healthy}
	if _, err := os.Stat(s.path(address)); err != nil {
		d.Health = pluginapi.Unhealthy
		return d
	}
	text, err := os.ReadFile(filepath.Join(s.path(address), "numa_node"))
	if err != nil {
		return d
	}
	if node, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && node >= 0 {
		d.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: node}}}
	}
	return d
}

// path returns the folder of a PCI device.
func (s sysfs) path(address string) string {
	return filepath.Join(string(s), "bus/pci/devices", address)
}

// vfioGroup returns the IOMMU group of a function of the driver vfio-pci, and "" for other drivers.
func (s sysfs) vfioGroup(address string) (string, error) {
	driver, err := os.Readlink(filepath.Join(s.path(address), "driver"))
	if os.IsNotExist(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("function %s: read driver: %w", address, err)
	}
	if filepath.Base(driver) != "vfio-pci" {
		return "", nil
	}
	group, err := os.Readlink(filepath.Join(s.path(address), "iommu_group"))
	if err != nil {
		return "", fmt.Errorf("function %s: read IOMMU group: %w", address, err)
	}
	return filepath.Base(group), nil
}
