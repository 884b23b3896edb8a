// SPDX-License-Identifier: Apache-2.0

package sriov

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// deviceInfo is a file of the Device Information Specification 1.1.0 of the Network Plumbing Working
// Group, by which programs on the node find the device of an interface.
type deviceInfo struct {
	Type    string  `json:"type"`
	Version string  `json:"version"`
	PCI     pciInfo `json:"pci"`
}

// pciInfo is the part about a PCI device.
type pciInfo struct {
	Address         string `json:"pci-address"`
	PhysicalAddress string `json:"pf-pci-address,omitempty"`
	RDMADevices     string `json:"rdma-device,omitempty"`
}

// deviceInfoPath returns the path of an interface's file. Names of sandboxes and interfaces have no
// slash.
func (b *Backend) deviceInfoPath(rec *attach.Record, ifc *attach.Interface) string {
	return filepath.Join(b.DeviceInfoDir, rec.ContainerID+"-"+ifc.Name+"-device.json")
}

// writeDeviceInfo writes the device-information file of an interface.
func (b *Backend) writeDeviceInfo(rec *attach.Record, ifc *attach.Interface, state *deviceState) error {
	content, err := json.Marshal(deviceInfo{
		Type: "pci", Version: "1.1.0",
		PCI: pciInfo{Address: ifc.DeviceID, PhysicalAddress: state.ParentAddress, RDMADevices: strings.Join(state.Saved.RDMADevices, ",")},
	})
	if err != nil {
		return fmt.Errorf("encode device information: %w", err)
	}
	if err := writeFile(b.deviceInfoPath(rec, ifc), content); err != nil {
		return fmt.Errorf("write device information: %w", err)
	}
	return nil
}

// writeFile writes a file and its folder. Readers see all of it or nothing.
func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// removeDeviceInfo removes the files that writeDeviceInfo has written, finished or not.
func (b *Backend) removeDeviceInfo(rec *attach.Record, ifc *attach.Interface) error {
	path := b.deviceInfoPath(rec, ifc)
	for _, p := range []string{path, path + ".new"} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove device information: %w", err)
		}
	}
	return nil
}
