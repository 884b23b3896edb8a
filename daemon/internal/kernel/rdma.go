// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// rdmaExclusive is the mode of the RDMA subsystem in which a device belongs to one network namespace
// (rdma-system(8)). In the other mode, all namespaces share all devices, and none can be moved.
const rdmaExclusive = "exclusive"

// rdmaSystem is the RDMA subsystem, as the calling thread's network namespace sees it.
type rdmaSystem interface {
	mode() (string, error)
	devices() ([]*netlink.RdmaLink, error)
	move(d *netlink.RdmaLink, to *netNamespace) error
	rename(d *netlink.RdmaLink, name string) error
}

// kernelRDMA is the kernel's RDMA subsystem.
type kernelRDMA struct{}

func (kernelRDMA) mode() (string, error)                 { return netlink.RdmaSystemGetNetnsMode() }
func (kernelRDMA) devices() ([]*netlink.RdmaLink, error) { return netlink.RdmaLinkList() }
func (kernelRDMA) move(d *netlink.RdmaLink, to *netNamespace) error {
	return netlink.RdmaLinkSetNsFd(d, uint32(to.fd))
}

func (kernelRDMA) rename(d *netlink.RdmaLink, name string) error {
	return netlink.RdmaLinkSetName(d, name)
}

// exclusiveRDMADevices returns the RDMA devices of the namespace; none in the mode in which they cannot be moved.
func exclusiveRDMADevices(s rdmaSystem) ([]*netlink.RdmaLink, error) {
	mode, err := s.mode()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil // the module of the subsystem is not loaded
	}
	if err != nil {
		return nil, fmt.Errorf("read mode of the RDMA subsystem: %w", err)
	}
	if mode != rdmaExclusive {
		return nil, nil
	}
	devices, err := s.devices()
	if err != nil {
		return nil, fmt.Errorf("list RDMA devices: %w", err)
	}
	return devices, nil
}

// rdmaIndexes returns the kernel's indexes of the RDMA devices with these names. A Pod can rename its devices; the
// index stays, in each namespace, and the kernel gives it to no other device while the module of the subsystem is loaded. The GUID would
// not do: it can be set, and many functions have none.
func rdmaIndexes(s rdmaSystem, names []string) (map[string]uint32, error) {
	if len(names) == 0 {
		return nil, nil
	}
	devices, err := exclusiveRDMADevices(s)
	if err != nil {
		return nil, err
	}
	var indexes map[string]uint32
	for _, d := range devices {
		if slices.Contains(names, d.Attrs.Name) {
			if indexes == nil {
				indexes = map[string]uint32{}
			}
			indexes[d.Attrs.Name] = d.Attrs.Index
		}
	}
	return indexes, nil
}

// moveRDMADevices moves the RDMA devices with these indexes to another namespace, in exclusive mode. Devices that
// are not in this namespace stay where they are. When a namespace ends, the kernel moves its devices to the host.
func moveRDMADevices(s rdmaSystem, indexes map[string]uint32, to *netNamespace) (moved int, err error) {
	err = eachRDMADevice(s, indexes, func(d *netlink.RdmaLink, _ string) error {
		if err := s.move(d, to); err != nil {
			return fmt.Errorf("move RDMA device %s: %w", d.Attrs.Name, err)
		}
		moved++
		return nil
	})
	return moved, err
}

// renameRDMADevices gives the RDMA devices with these indexes their names again. A device whose name another one
// has taken keeps its present name: names are unique on the node, and the function is found without them.
func renameRDMADevices(s rdmaSystem, indexes map[string]uint32) error {
	return eachRDMADevice(s, indexes, func(d *netlink.RdmaLink, name string) error {
		if d.Attrs.Name == name {
			return nil
		}
		if err := s.rename(d, name); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("rename RDMA device %s to %s: %w", d.Attrs.Name, name, err)
		}
		return nil
	})
}

// eachRDMADevice calls fn for the devices of this namespace that have one of the indexes, with the index's name.
func eachRDMADevice(s rdmaSystem, indexes map[string]uint32, fn func(d *netlink.RdmaLink, name string) error) error {
	if len(indexes) == 0 {
		return nil
	}
	devices, err := exclusiveRDMADevices(s)
	if err != nil {
		return err
	}
	for _, d := range devices {
		for name, index := range indexes {
			if index != d.Attrs.Index {
				continue
			}
			if err := fn(d, name); err != nil {
				return err
			}
		}
	}
	return nil
}
