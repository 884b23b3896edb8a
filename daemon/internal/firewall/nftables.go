// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	tableName = "patchbay"
	// CounterReceived counts packets that were addressed to a VXLAN of this node and did not come
	// from another node's VTEP.
	CounterReceived = "received"
	// CounterForwarded counts packets that this node should have forwarded to a VTEP, or whose VXLAN
	// ID could not be read.
	CounterForwarded = "forwarded"
	// priority runs the chains before those of other programs. Address translation has run by
	// then, as for every input and forward hook.
	priority = -10
	// vxlanPort is VXLAN's UDP port (RFC 7348, 8).
	vxlanPort = 4789
	// elementsPerMessage keeps a list of elements below 64 KiB, the limit of a netlink attribute.
	elementsPerMessage = 500
)

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

const (
	// sendBuffer is large enough for the largest table: the kernel requires it in one message.
	sendBuffer = 32 << 20
	// receiveBuffer is large enough for one acknowledgement per part of that message.
	receiveBuffer = 4 << 20
)

// withConn runs fn with a socket in the namespace. Errors of a kernel that cannot filter
// wrap unsupported.
func withConn(ns *os.File, unsupported error, fn func(*nftables.Conn) error) error {
	err := dialAndRun(ns, fn)
	// A kernel without NETLINK_NETFILTER, without nf_tables, or without the family.
	for _, e := range []error{unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EOPNOTSUPP} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", unsupported, err)
		}
	}
	return err
}

func dialAndRun(ns *os.File, fn func(*nftables.Conn) error) error {
	c, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())), nftables.AsLasting(),
		nftables.WithSockOptions(func(s *netlink.Conn) error {
			return errors.Join(s.SetWriteBuffer(sendBuffer), s.SetReadBuffer(receiveBuffer))
		}))
	if err != nil {
		return fmt.Errorf("open an nftables socket: %w", err)
	}
	return errors.Join(fn(c), c.CloseLasting())
}

// removeTable deletes a table. It adds the table first, so that a missing one is not an error.
func removeTable(c *nftables.Conn, t *nftables.Table) error {
	c.DelTable(c.AddTable(t))
	if err := c.Flush(); err != nil {
		return fmt.Errorf("remove the nftables table %s: %w", t.Name, err)
	}
	return nil
}

const (
	// headerLength is the length of struct nfgenmsg.
	headerLength = 4
	// tableAttribute is NFTA_CHAIN_TABLE and NFTA_RULE_TABLE.
	tableAttribute = unix.NFTA_RULE_TABLE
)

// forEachInTable calls visit with the attributes of each chain or rule of the family's table
// patchbay.
func forEachInTable(c *netlink.Conn, family byte, kind int, visit func(attrs []byte) error) error {
	msgs, err := c.Execute(netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind),
			Flags: netlink.Request | netlink.Dump,
		},
		Data: []byte{family, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		return err
	}
	for _, m := range msgs {
		attrs, matches, err := patchbayAttributes(m.Data)
		if err == nil && matches {
			err = visit(attrs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// patchbayAttributes returns the attributes of a message, and whether it is about the table
// patchbay. The header is left out: it has a counter of all changes in the namespace.
func patchbayAttributes(message []byte) (attrs []byte, matches bool, err error) {
	if len(message) < headerLength {
		return nil, false, nil
	}
	attrs = message[headerLength:]
	d, err := netlink.NewAttributeDecoder(attrs)
	if err != nil {
		return nil, false, err
	}
	for d.Next() {
		matches = matches || d.Type() == tableAttribute && d.String() == tableName
	}
	return attrs, matches, d.Err()
}

// tableWriter adds sets and rules to a table.
type tableWriter struct {
	conn  *nftables.Conn
	table *nftables.Table
}

// addSet adds a set and its elements.
func (w *tableWriter) addSet(s *nftables.Set, keys [][]byte) error {
	if err := w.conn.AddSet(s, nil); err != nil {
		return err
	}
	for len(keys) > 0 {
		n := min(len(keys), elementsPerMessage)
		elements := make([]nftables.SetElement, n)
		for i := range elements {
			elements[i].Key = keys[i]
		}
		if err := w.conn.SetAddElements(s, elements); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// addRule appends a rule of these expressions to the chain.
func (w *tableWriter) addRule(chain *nftables.Chain, parts ...exprs) {
	rule := &nftables.Rule{Table: w.table, Chain: chain}
	for _, p := range parts {
		rule.Exprs = append(rule.Exprs, p...)
	}
	w.conn.AddRule(rule)
}

// exprs are expressions of a rule.
type exprs []expr.Any

// register is the n-th of the kernel's registers of 4 bytes, from 1.
func register(n uint32) uint32 { return unix.NFT_REG32_00 + n - 1 }

func matchRegister(reg uint32, value ...byte) expr.Any {
	return &expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: value}
}

// matchSet matches if the set contains the key in the first registers.
func matchSet(s *nftables.Set) exprs {
	return exprs{&expr.Lookup{SourceRegister: register(1), SetName: s.Name, SetID: s.ID}}
}

// matchOutsideSet matches if the set does not contain the key in the first registers.
func matchOutsideSet(s *nftables.Set) exprs {
	return exprs{&expr.Lookup{SourceRegister: register(1), SetName: s.Name, SetID: s.ID, Invert: true}}
}

// loadBytes loads bytes of the frame.
func loadBytes(n, offset, length uint32) exprs {
	return exprs{&expr.Payload{DestRegister: register(n), Base: expr.PayloadBaseLLHeader, Offset: offset, Len: length}}
}

// matchBytes matches if the frame has the bytes at the offset.
func matchBytes(offset uint32, want ...byte) exprs {
	return concat(loadBytes(1, offset, uint32(len(want))), exprs{matchRegister(register(1), want...)})
}

func concat(parts ...exprs) exprs { return slices.Concat(parts...) }

func verdictAccept() exprs { return exprs{&expr.Verdict{Kind: expr.VerdictAccept}} }

func verdictReturn() exprs { return exprs{&expr.Verdict{Kind: expr.VerdictReturn}} }

func verdictGoto(chain string) exprs {
	return exprs{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
}

func dropWithCounter(counter string) exprs {
	return exprs{
		&expr.Objref{Type: int(nftables.ObjTypeCounter), Name: counter},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}
}

func dropCounted() exprs { return exprs{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}} }

// linkKey is a link's name as loadInputLink loads it.
func linkKey(link string) []byte {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name[:unix.IFNAMSIZ-1], link)
	return name
}
