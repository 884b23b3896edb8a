// SPDX-License-Identifier: Apache-2.0

// Package firewall filters VXLAN packets and the source addresses of Pods with nftables. It
// reads and writes the tables inet patchbay and netdev patchbay, and no others.
//
// Firewall writes the table inet patchbay, which lets only other nodes send into the host's
// VXLANs. The kernel delivers every UDP packet with a VXLAN's port and ID to it, from any
// sender: without the filter, an ordinary Pod could put frames on any network through its
// eth0 and, as the link learns from them, receive the answers. The table accepts packets
// that another node's VTEP sent and that arrived on the VTEP's NIC. It also drops packets
// that are forwarded to a VTEP: the node's masquerading would give a Pod's packet the source
// address of a VTEP.
//
// The table does not keep out a program in the node's own network namespace, such as a Pod
// with hostNetwork, which has the node's address. Neither does it keep out a host that sends
// with a forged source address on the underlay: VXLAN has no authentication.
//
// SourceGuard writes the table netdev patchbay, which drops frames that Pods send with the
// MAC or address of another.
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

// Firewall writes the table inet patchbay of one network namespace. It is safe for concurrent use.
type Firewall struct {
	ns *os.File

	mu sync.Mutex // guards what follows, and the table
	// applied is the filter that was written last; nil before the first.
	applied *netwatcher.VXLANFilter
	// lastDescription is the kernel's description of the table after that write.
	lastDescription string
}

// Open opens the network namespace at path; "" is the process's own.
func Open(path string) (*Firewall, error) {
	ns, err := openNamespace(path)
	if err != nil {
		return nil, err
	}
	return &Firewall{ns: ns}, nil
}

// Close closes the file descriptor; the table stays.
func (f *Firewall) Close() error { return f.ns.Close() }

// Apply implements netwatcher.Firewall. It replaces the table in one transaction, so that no
// packet meets a part of it, and restores a table that another program changed or removed.
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
		err = nil // no table exists, and none is needed
	}
	if err != nil {
		f.applied = nil
		return false, err
	}
	f.applied = &want
	return changed, nil
}

// maxDescriptions bounds how often the table is listed until two lists are equal.
const maxDescriptions = 5

// stableDescription describes the table until the description equals the one before: while
// the kernel resizes a large set after a write, a list can miss elements or name them twice.
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

// describe returns a text that is equal for equal tables. It has chains and rules as the bytes of the
// kernel's answer and sets as sorted keys, and no counters.
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

// describeChains appends the kernel's bytes of all chains or rules of the table.
func describeChains(c *netlink.Conn, kind int, b *strings.Builder) error {
	return forEachInTable(c, unix.NFPROTO_INET, kind, func(attrs []byte) error {
		fmt.Fprintf(b, "%d %x\n", kind, attrs)
		return nil
	})
}

// describeSets appends the sets. The kernel lists elements in any order.
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
	c.AddTable(t) // DelTable requires that the table exists
	c.DelTable(t)
	c.AddTable(t)
	r := &vxlanRules{tableWriter: tableWriter{conn: c, table: t}}
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

// Remove deletes the table, for a node that Patchbay leaves.
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

// Dropped returns how many packets the table dropped, by CounterReceived and
// CounterForwarded. Counts survive restarts of the daemon and changes of the table.
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

// readCounters reads the counters by name; the result is empty without a table.
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
	return withConn(f.ns, netwatcher.ErrFilterUnsupported, fn)
}

var _ netwatcher.Firewall = (*Firewall)(nil)
