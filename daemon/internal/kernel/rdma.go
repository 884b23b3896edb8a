// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
)

// rdmaExclusive is the mode of the RDMA subsystem in which a device belongs to one network namespace
// (rdma-system(8)). In the other mode, all namespaces share all devices, and none can be moved.
const rdmaExclusive = "exclusive"

// moveRDMADevices moves the RDMA devices with these names from one namespace to another, in exclusive
// mode. Devices that are not in the first namespace stay where they are. When a namespace ends, the
// kernel moves its devices to the host.
func moveRDMADevices(names []string, from, to *netNamespace) error {
	if len(names) == 0 {
		return nil
	}
	return from.do(func() error {
		mode, err := netlink.RdmaSystemGetNetnsMode()
		if err != nil {
			return fmt.Errorf("read mode of the RDMA subsystem: %w", err)
		}
		if mode != rdmaExclusive {
			return nil
		}
		devices, err := netlink.RdmaLinkList()
		if err != nil {
			return fmt.Errorf("list RDMA devices: %w", err)
		}
		for _, d := range devices {
			if !slices.Contains(names, d.Attrs.Name) {
				continue
			}
			if err := netlink.RdmaLinkSetNsFd(d, uint32(to.fd)); err != nil {
				return fmt.Errorf("move RDMA device %s: %w", d.Attrs.Name, err)
			}
		}
		return nil
	})
}
