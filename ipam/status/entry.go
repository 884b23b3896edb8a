// SPDX-License-Identifier: Apache-2.0

package status

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam"
)

// Entry is one entry of status.ipam.held: the addresses that a node covers.
type Entry struct {
	// Present means that the entry exists; it may be empty.
	Present bool
	// Seq is raised by each incarnation of the node's daemon.
	Seq    int64
	V4, V6 ipam.Ranges
	// Rollback is the node's report of a rollback, nil for none.
	Rollback *v1.RollbackReport
	// QuarantinedV4 and QuarantinedV6 are the addresses of V4 and V6 that are in quarantine.
	QuarantinedV4, QuarantinedV6 ipam.Ranges
}

// maxEntryAddresses limits the addresses of one entry and family, far above what a node needs: an
// entry with all of fd00::/8 must not cause work.
const maxEntryAddresses = 1 << 16

// ParseEntry parses an entry.
func ParseEntry(h v1.HeldAddresses) (Entry, error) {
	e := Entry{Present: true, Seq: h.Seq, Rollback: h.Rollback}
	v4, err4 := parseRanges(h.V4, true)
	v6, err6 := parseRanges(h.V6, false)
	q4, errQ4 := parseRanges(h.QuarantinedV4, true)
	q6, errQ6 := parseRanges(h.QuarantinedV6, false)
	if err := errors.Join(err4, err6, errQ4, errQ6); err != nil {
		return e, err
	}
	e.V4, e.V6, e.QuarantinedV4, e.QuarantinedV6 = v4, v6, q4, q6
	return e, nil
}

func parseRanges(text string, is4 bool) (ipam.Ranges, error) {
	r, err := ipam.ParseRanges(text)
	if err != nil || r.Empty() {
		return r, err
	}
	if n := r.Len(); n > maxEntryAddresses {
		return r, fmt.Errorf("%d addresses in one entry, want at most %d", n, maxEntryAddresses)
	}
	for a := range r.All() {
		if a.Is4() != is4 {
			return r, fmt.Errorf("%v is of the other family", a)
		}
		break
	}
	return r, nil
}

// encode is the inverse of ParseEntry.
func (e *Entry) encode(nodeUID string) v1.HeldAddresses {
	return v1.HeldAddresses{
		UID: nodeUID, Seq: e.Seq, V4: e.V4.String(), V6: e.V6.String(), Rollback: e.Rollback,
		QuarantinedV4: e.QuarantinedV4.String(), QuarantinedV6: e.QuarantinedV6.String(),
	}
}

// Of returns the addresses of that address's family.
func (e *Entry) Of(a netip.Addr) *ipam.Ranges {
	if a.Is4() {
		return &e.V4
	}
	return &e.V6
}

// QuarantinedOf returns the addresses in quarantine of that address's family.
func (e *Entry) QuarantinedOf(a netip.Addr) *ipam.Ranges {
	if a.Is4() {
		return &e.QuarantinedV4
	}
	return &e.QuarantinedV6
}

// Contains reports whether the entry covers the address.
func (e *Entry) Contains(a netip.Addr) bool { return e.Of(a).Contains(a) }

// IsQuarantined reports whether the entry covers the address as quarantined.
func (e *Entry) IsQuarantined(a netip.Addr) bool { return e.QuarantinedOf(a).Contains(a) }

// IsEmpty reports whether the entry covers no address.
func (e *Entry) IsEmpty() bool { return e.V4.Empty() && e.V6.Empty() }

// Addrs returns all addresses of the entry.
func (e *Entry) Addrs() []netip.Addr {
	return slices.AppendSeq(slices.Collect(e.V4.All()), e.V6.All())
}

// Clone returns a deep copy.
func (e *Entry) Clone() Entry {
	c := *e
	c.V4, c.V6 = e.V4.Clone(), e.V6.Clone()
	c.QuarantinedV4, c.QuarantinedV6 = e.QuarantinedV4.Clone(), e.QuarantinedV6.Clone()
	c.Rollback = e.Rollback.DeepCopy()
	return c
}

// CoversSame reports whether two entries cover the same addresses.
func (e *Entry) CoversSame(o *Entry) bool {
	return e.Present == o.Present && e.V4.Equal(&o.V4) && e.V6.Equal(&o.V6)
}

// HasReclaimable reports whether the entry has addresses of that address's family that its node may free
// after a reclaim request: all but those in quarantine.
func (e *Entry) HasReclaimable(of netip.Addr) bool { return e.Of(of).Len() > e.QuarantinedOf(of).Len() }
