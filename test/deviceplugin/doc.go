// SPDX-License-Identifier: Apache-2.0

// Package deviceplugin is a device plugin for the tests: it advertises virtual functions to kubelet by
// their PCI addresses, as sriov-network-device-plugin does. It is no product: it has no configuration
// but the command line, and no selectors.
//
// It speaks kubelet's API deviceplugin/v1beta1: one socket and one registration for each resource. When
// kubelet restarts, it deletes all sockets of its folder and makes its own again; the plugin then starts
// again and registers again.
//
// A container gets the environment variable PCIDEVICE_<RESOURCE> with the PCI addresses of its functions.
// For functions of the driver vfio-pci it also gets the device nodes /dev/vfio/vfio and /dev/vfio/<group>.
package deviceplugin
