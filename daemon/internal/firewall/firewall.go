// SPDX-License-Identifier: Apache-2.0

// Package firewall keeps strangers out of the host's VXLANs with an nftables table of
// its own, inet patchbay. It reads and writes no other table.
//
// The kernel gives a VXLAN every UDP packet with its port and ID, whoever sent it: an
// ordinary Pod through its eth0 is enough to put frames on any network and, as the link
// learns from them, to have the answers sent to it. The table lets in what another node's
// VTEP sent and what arrived on the VTEP's NIC. It also drops what is forwarded to a VTEP:
// the node's masquerading would give a Pod's packet the source address of a VTEP.
//
// A program in the node's own network namespace, such as a Pod with hostNetwork, has the
// node's address and is not kept out. Nor is one that can send with any source address on
// the underlay itself: VXLAN has no authentication.
package firewall

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

// Firewall writes the table of one network namespace. It is safe for concurrent use.
type Firewall struct {
	ns *os.File

	mu sync.Mutex // guards what follows, and the table
	// applied is what was written last; nil before.
	applied *netwatcher.VXLANFilter
	// lastDescription is the table as the kernel described it then.
	lastDescription string
}

// Open takes the network namespace at path; "" is the process's own.
func Open(path string) (*Firewall, error) {
	ns, err := openNamespace(path)
	if err != nil {
		return nil, err
	}
	return &Firewall{ns: ns}, nil
}

// Close releases the file descriptor; the table stays.
func (f *Firewall) Close() error { return f.ns.Close() }

// Apply implements netwatcher.Firewall. The table is replaced as a whole, so no packet
// sees a part of it; a table that something else changed or removed is written again.
func (f *Firewall) Apply(ctx context.Context, want netwatcher.VXLANFilter) (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if want.Empty() && f.applied != nil && f.applied.Empty() {
		return false, nil
	}
	err = f.withConn(func(c *nftables.Conn) error {
		if want.Empty() {
			return removeVXLANTable(c)
		}
		if f.applied != nil && f.applied.Equal(&want) {
			if now, err := f.stableDescription(c, f.lastDescription); err == nil && now == f.lastDescription {
				return nil
			}
		}
		changed = true
		if err := writeTable(c, &want, readCounters(c)); err != nil {
			return err
		}
		f.lastDescription, err = f.stableDescription(c, "")
		return err
	})
	if want.Empty() && errors.Is(err, netwatcher.ErrFilterUnsupported) {
		err = nil // there is no table, and none is needed
	}
	if err != nil {
		f.applied = nil
		return false, err
	}
	f.applied = &want
	return changed, nil
}

// maxDescriptions is how often the table is listed at most until two lists are the same.
const maxDescriptions = 5

// stableDescription describes the table when its description is that of before, or has become stable:
// while the kernel resizes a large set after a write, a list names elements twice, or not.
func (f *Firewall) stableDescription(c *nftables.Conn, before string) (string, error) {
	for range maxDescriptions {
		now, err := f.describe(c)
		if err != nil || now == before {
			return now, err
		}
		before = now
	}
	return before, nil
}

// describe says what the table is in the kernel, counts aside. Chains and rules are what
// the kernel answers, byte by byte, which need not be understood to be compared.
func (f *Firewall) describe(c *nftables.Conn) (string, error) {
	raw, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: int(f.ns.Fd())})
	if err != nil {
		return "", fmt.Errorf("open an nftables socket: %w", err)
	}
	defer raw.Close()
	var b strings.Builder
	for _, kind := range []int{unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETRULE} {
		if err := describeChains(raw, kind, &b); err != nil {
			return "", fmt.Errorf("list chains and rules: %w", err)
		}
	}
	if err := describeSets(c, &b); err != nil {
		return "", err
	}
	return b.String(), nil
}

// describeChains adds what the kernel says of all chains or rules of the table.
func describeChains(c *netlink.Conn, kind int, b *strings.Builder) error {
	return forEachInTable(c, unix.NFPROTO_INET, kind, func(attrs []byte) error {
		fmt.Fprintf(b, "%d %x\n", kind, attrs)
		return nil
	})
}

// describeSets adds the sets; the kernel lists elements in any order.
func describeSets(c *nftables.Conn, b *strings.Builder) error {
	sets, err := c.GetSets(&nftables.Table{Family: nftables.TableFamilyINet, Name: tableName})
	if err != nil {
		return fmt.Errorf("list sets: %w", err)
	}
	for _, s := range sets {
		elements, err := c.GetSetElements(s)
		if err != nil {
			return fmt.Errorf("list elements of set %s: %w", s.Name, err)
		}
		var keys []string
		for _, e := range elements {
			keys = append(keys, hex.EncodeToString(e.Key))
		}
		slices.Sort(keys)
		fmt.Fprintf(b, "set %s %v\n", s.Name, keys)
	}
	return nil
}

// writeTable replaces the table.
func writeTable(c *nftables.Conn, want *netwatcher.VXLANFilter, counts map[string]expr.Counter) error {
	t := &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
	c.AddTable(t) // so that there is one to delete
	c.DelTable(t)
	c.AddTable(t)
	r := &ruleset{conn: c, table: t}
	if err := r.build(want, counts); err != nil {
		return fmt.Errorf("write the nftables table inet %s: %w", tableName, err)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write the nftables table inet %s: %w", tableName, err)
	}
	return nil
}

// removeVXLANTable deletes the table.
func removeVXLANTable(c *nftables.Conn) error {
	return removeTable(c, &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName})
}

// Remove takes the table away, for a node that Patchbay leaves.
func (f *Firewall) Remove() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied = nil
	err := f.withConn(removeVXLANTable)
	if errors.Is(err, netwatcher.ErrFilterUnsupported) {
		return nil
	}
	return err
}

// Dropped returns how many packets were dropped, by the name of the counter: Received
// and Forwarded. Counts survive restarts of the daemon and changes of the table.
func (f *Firewall) Dropped() map[string]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := map[string]uint64{}
	_ = f.withConn(func(c *nftables.Conn) error {
		for name, n := range readCounters(c) {
			counts[name] = n.Packets
		}
		return nil
	})
	return counts
}

// readCounters reads the counters; nothing when there is no table.
func readCounters(c *nftables.Conn) map[string]expr.Counter {
	objects, err := c.GetNamedObjects(&nftables.Table{Family: nftables.TableFamilyINet, Name: tableName})
	if err != nil {
		return nil
	}
	counts := map[string]expr.Counter{}
	for _, o := range objects {
		named, ok := o.(*nftables.NamedObj)
		if !ok {
			continue
		}
		if n, ok := named.Obj.(*expr.Counter); ok {
			counts[named.Name] = *n
		}
	}
	return counts
}

// withConn runs fn with a socket in the namespace.
func (f *Firewall) withConn(fn func(*nftables.Conn) error) error {
	return explainUnsupported(withConn(f.ns, fn))
}

// explainUnsupported marks what a kernel answers that cannot filter: without NETLINK_NETFILTER,
// without nf_tables, without its family inet.
func explainUnsupported(err error) error {
	for _, e := range []error{unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EOPNOTSUPP} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", netwatcher.ErrFilterUnsupported, err)
		}
	}
	return err
}

var _ netwatcher.Firewall = (*Firewall)(nil)
