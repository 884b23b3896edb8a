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
	// Name and Fields are for messages: the family, and the fields of the spec that set its
	// subnet.
	Name, Fields string
	// Subnet is what the spec asks for; nil when nothing.
	Subnet *network.Subnet
	// Pool has the bits; nil when the network has no addresses of the family.
	Pool *ipam.Pool
	// Former says that Pool is of the subnet that the spec had before.
	Former bool
	// nodeAddresses are the nodes' own addresses, which are never handed out.
	nodeAddresses []netip.Addr
}

// open decodes the recorded bitmap, for the subnet that it was written for. It rebuilds by
// fill a bitmap that is absent or cannot be read, and reports the latter.
func (f *Family) open(rec *v1.AddressBitmap, fill func(*ipam.Pool) error, report func(error)) error {
	if rec != nil {
		err := f.decode(rec)
		if err == nil {
			return nil
		}
		report(fmt.Errorf("read %s bitmap, will rebuild it: %w", f.Name, err))
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
	return err
}

// reset makes an empty pool of the subnet that the spec asks for, if any.
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

// Reserved returns the addresses that no dynamic claim gets: the nodes' own, and the gateways
// of the network's routes.
func (f *Family) Reserved() []netip.Addr {
	reserved := f.nodeAddresses
	if f.Subnet != nil {
		for _, r := range f.Subnet.Routes {
			reserved = append(reserved, r.Gateway)
		}
	}
	return reserved
}

// encode is the inverse of open.
func (f *Family) encode() *v1.AddressBitmap {
	if f.Pool == nil {
		return nil
	}
	s := f.Pool.Encode()
	return &v1.AddressBitmap{CIDR: s.CIDR, Cursor: s.Cursor, Pages: s.Pages}
}

// Release clears a bit, if there is one for the address.
func (f *Family) Release(a netip.Addr) {
	if f.Pool != nil {
		f.Pool.Release(a)
	}
}

// Mark sets a bit, if there is one for the address.
func (f *Family) Mark(a netip.Addr) {
	if f.Pool != nil {
		f.Pool.MarkAllocated(a)
	}
}

// HandsOut reports whether dynamic claims can get the address.
func (f *Family) HandsOut(a netip.Addr) bool {
	return f.Pool != nil && !f.Former && f.Pool.IsAllocatable(a)
}
