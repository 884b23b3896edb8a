// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"net/netip"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
)

// Family is one address family of a network in a Draft.
type Family struct {
	// Name is the family for messages.
	Name string
	// Subnet is the subnet of the spec; nil if it has none.
	Subnet *network.Subnet
	// Pool has the bits; nil if the network has no addresses of the family.
	Pool *ipam.Pool
	// Former means that Pool has the subnet of an earlier spec.
	Former bool
	// miscounted means that the recorded bitmap had another number of bits than it says: it is
	// damaged, and addresses that DanmEps cover may seem free.
	miscounted bool
	// nodeAddresses are the nodes' own addresses, which dynamic claims never get.
	nodeAddresses []netip.Addr
}

// open decodes the recorded bitmap, with the subnet that it was written for. It rebuilds a missing
// or unreadable bitmap with fill, and reports an unreadable one.
func (f *Family) open(rec *v1.AddressBitmap, fill func(*ipam.Pool) error, report func(error)) error {
	if rec != nil {
		err := f.decode(rec)
		if err == nil {
			return nil
		}
		report(fmt.Errorf("read %s bitmap, which is rebuilt: %w", f.Name, err))
	}
	f.Pool, f.Former = nil, false
	if f.Subnet == nil {
		return nil
	}
	if err := f.reset(); err != nil {
		return err
	}
	return fill(f.Pool)
}

func (f *Family) decode(rec *v1.AddressBitmap) (err error) {
	cfg := f.config()
	if f.Subnet == nil || rec.CIDR != f.Subnet.CIDR.String() {
		f.Former = true
		if cfg.CIDR, err = netip.ParsePrefix(rec.CIDR); err != nil {
			return fmt.Errorf("parse cidr: %w", err)
		}
		cfg = ipam.Config{CIDR: cfg.CIDR}
	}
	f.Pool, err = ipam.Decode(cfg, ipam.State{CIDR: rec.CIDR, Cursor: rec.Cursor, Pages: rec.Pages})
	f.miscounted = err == nil && f.Pool.Allocated() != rec.Allocated
	return err
}

// reset creates an empty pool for the subnet of the spec, if it has one.
func (f *Family) reset() (err error) {
	f.Pool, f.Former = nil, false
	if f.Subnet != nil {
		f.Pool, err = ipam.New(f.config())
	}
	return err
}

func (f *Family) config() ipam.Config {
	if f.Subnet == nil {
		return ipam.Config{}
	}
	return ipam.Config{CIDR: f.Subnet.CIDR, Start: f.Subnet.Start, End: f.Subnet.End, Reserved: f.Reserved()}
}

// Reserved returns the addresses that dynamic claims never get: the nodes' own, and the gateways of
// the network's routes.
func (f *Family) Reserved() []netip.Addr {
	return append(f.nodeAddresses, f.Subnet.Gateways()...)
}

// encode is the inverse of open.
func (f *Family) encode() *v1.AddressBitmap {
	if f.Pool == nil {
		return nil
	}
	s := f.Pool.Encode()
	return &v1.AddressBitmap{CIDR: s.CIDR, Cursor: s.Cursor, Allocated: f.Pool.Allocated(), Pages: s.Pages}
}

// Release clears the bit of an address in the pool.
func (f *Family) Release(a netip.Addr) {
	if f.Pool != nil {
		f.Pool.Release(a)
	}
}

// Mark sets the bit of an address in the pool.
func (f *Family) Mark(a netip.Addr) {
	if f.Pool != nil {
		f.Pool.MarkAllocated(a)
	}
}

// IsAllocatable reports whether dynamic claims can get the address once it is free.
func (f *Family) IsAllocatable(a netip.Addr) bool {
	return f.Pool != nil && !f.Former && f.Pool.IsAllocatable(a)
}
