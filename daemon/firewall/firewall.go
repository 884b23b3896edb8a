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
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

var _ netwatcher.Firewall = (*Firewall)(nil)

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

func openNamespace(path string) (*os.File, error) {
	if path == "" {
		path = "/proc/self/ns/net"
	}
	ns, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the host's namespace: %w", err)
	}
	return ns, nil
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

const (
	// sendBuffer takes the largest table in one message, which the kernel wants it in.
	sendBuffer = 32 << 20
	// receiveBuffer takes an acknowledgement for each part of it.
	receiveBuffer = 4 << 20
)

// connected runs fn with a socket in the namespace.
func (f *Firewall) connected(fn func(*nftables.Conn) error) error {
	return explained(connect(f.ns, fn))
}

func connect(ns *os.File, fn func(*nftables.Conn) error) error {
	c, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())), nftables.AsLasting(),
		nftables.WithSockOptions(func(s *netlink.Conn) error {
			return errors.Join(s.SetWriteBuffer(sendBuffer), s.SetReadBuffer(receiveBuffer))
		}))
	if err != nil {
		return fmt.Errorf("open an nftables socket: %w", err)
	}
	return errors.Join(fn(c), c.CloseLasting())
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

// remove deletes the table.
func remove(c *nftables.Conn) error {
	return removeTable(c, &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName})
}

// removeTable deletes a table; none is no error, as it is made first.
func removeTable(c *nftables.Conn, t *nftables.Table) error {
	c.DelTable(c.AddTable(t))
	if err := c.Flush(); err != nil {
		return fmt.Errorf("remove the nftables table %s: %w", t.Name, err)
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
