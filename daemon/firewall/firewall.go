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
	applied *netwatcher.Filter
	// seen is the table as the kernel described it then.
	seen string
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
func (f *Firewall) Apply(ctx context.Context, want netwatcher.Filter) (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if want.Empty() && f.applied != nil && f.applied.Empty() {
		return false, nil
	}
	err = f.connected(func(c *nftables.Conn) error {
		if want.Empty() {
			return remove(c)
		}
		if f.applied != nil && f.applied.Equal(&want) {
			if now, err := f.settled(c, f.seen); err == nil && now == f.seen {
				return nil
			}
		}
		changed = true
		if err := write(c, &want, drops(c)); err != nil {
			return err
		}
		f.seen, err = f.settled(c, "")
		return err
	})
	if want.Empty() && errors.Is(err, netwatcher.ErrNoFilter) {
		err = nil // there is no table, and none is needed
	}
	if err != nil {
		f.applied = nil
		return false, err
	}
	f.applied = &want
	return changed, nil
}

// descriptions is how often the table is listed at most until two lists are the same.
const descriptions = 5

// settled describes the table when its description is that of before, or has become stable:
// while the kernel resizes a large set after a write, a list names elements twice, or not.
func (f *Firewall) settled(c *nftables.Conn, before string) (string, error) {
	for range descriptions {
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
		if err := listOurs(raw, kind, &b); err != nil {
			return "", fmt.Errorf("list chains and rules: %w", err)
		}
	}
	if err := listSets(c, &b); err != nil {
		return "", err
	}
	return b.String(), nil
}

// listOurs adds what the kernel says of all chains or rules of the table.
func listOurs(c *netlink.Conn, kind int, b *strings.Builder) error {
	return list(c, unix.NFPROTO_INET, kind, func(attrs []byte) error {
		fmt.Fprintf(b, "%d %x\n", kind, attrs)
		return nil
	})
}

// listSets adds the sets; the kernel lists elements in any order.
func listSets(c *nftables.Conn, b *strings.Builder) error {
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

// write replaces the table.
func write(c *nftables.Conn, want *netwatcher.Filter, counts map[string]expr.Counter) error {
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

// remove deletes the table.
func remove(c *nftables.Conn) error {
	return removeTable(c, &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName})
}

// Remove takes the table away, for a node that Patchbay leaves.
func (f *Firewall) Remove() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied = nil
	err := f.connected(remove)
	if errors.Is(err, netwatcher.ErrNoFilter) {
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
	_ = f.connected(func(c *nftables.Conn) error {
		for name, n := range drops(c) {
			counts[name] = n.Packets
		}
		return nil
	})
	return counts
}

// drops reads the counters; nothing when there is no table.
func drops(c *nftables.Conn) map[string]expr.Counter {
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

// connected runs fn with a socket in the namespace.
func (f *Firewall) connected(fn func(*nftables.Conn) error) error {
	return explained(connect(f.ns, fn))
}

// explained marks what a kernel answers that cannot filter: without NETLINK_NETFILTER,
// without nf_tables, without its family inet.
func explained(err error) error {
	for _, e := range []error{unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EOPNOTSUPP} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", netwatcher.ErrNoFilter, err)
		}
	}
	return err
}

var _ netwatcher.Firewall = (*Firewall)(nil)
