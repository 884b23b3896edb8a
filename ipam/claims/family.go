// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"net/netip"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
)

// family is one address family of a network while a plan is made.
type family struct {
	// name and fields are for messages.
	name, fields string
	// spec is the subnet that the network asks for; nil when none.
	spec *network.Subnet
	// pool has the bits; nil when the network has no addresses of the family.
	pool *ipam.Pool
	// former says that pool is of the subnet that the spec had before.
	former bool
	// reserved are addresses of this network that are never handed out.
	reserved []netip.Addr
}

// open decodes the recorded bitmap, for the subnet that it was written for. A
// bitmap that is absent or cannot be read is rebuilt by fill.
func (f *family) open(rec *v1.AddressBitmap, fill func(*ipam.Pool) error, report func(error)) error {
	if rec != nil {
		err := f.decode(rec)
		if err == nil {
			return nil
		}
		report(fmt.Errorf("read %s bitmap, will rebuild it: %w", f.name, err))
	}
	f.pool, f.former = nil, false
	if f.spec == nil {
		return nil
	}
	if err := f.reset(); err != nil {
		return err
	}
	return fill(f.pool)
}

func (f *family) decode(rec *v1.AddressBitmap) (err error) {
	cfg := f.config()
	if f.spec == nil || rec.CIDR != f.spec.CIDR.String() {
		f.former = true
		if cfg.CIDR, err = netip.ParsePrefix(rec.CIDR); err != nil {
			return fmt.Errorf("parse cidr: %w", err)
		}
		cfg = ipam.Config{CIDR: cfg.CIDR}
	}
	f.pool, err = ipam.Decode(cfg, ipam.State{CIDR: rec.CIDR, Cursor: rec.Cursor, Pages: rec.Pages})
	return err
}

// reset makes an empty pool of the subnet that the spec asks for, if any.
func (f *family) reset() (err error) {
	f.pool, f.former = nil, false
	if f.spec != nil {
		f.pool, err = ipam.New(f.config())
	}
	return err
}

func (f *family) config() ipam.Config {
	if f.spec == nil {
		return ipam.Config{}
	}
	cfg := ipam.Config{CIDR: f.spec.CIDR, Start: f.spec.Start, End: f.spec.End, Reserved: f.reserved}
	for _, r := range f.spec.Routes {
		cfg.Reserved = append(cfg.Reserved, r.Gateway)
	}
	return cfg
}

// bitmap is the inverse of open.
func (f *family) bitmap() *v1.AddressBitmap {
	if f.pool == nil {
		return nil
	}
	s := f.pool.Encode()
	return &v1.AddressBitmap{CIDR: s.CIDR, Cursor: s.Cursor, Pages: s.Pages}
}

// release clears a bit, if there is one for the address.
func (f *family) release(a netip.Addr) {
	if f.pool != nil {
		f.pool.Release(a)
	}
}

// mark sets a bit, if there is one for the address.
func (f *family) mark(a netip.Addr) {
	if f.pool != nil {
		f.pool.MarkAllocated(a)
	}
}
