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
	// CounterReceived counts packets that were for a VXLAN of this node and came from a stranger.
	CounterReceived = "received"
	// CounterForwarded counts packets that this node was to forward to a VTEP, or whose VXLAN ID
	// could not be read.
	CounterForwarded = "forwarded"
	// priority is before that of other programs' filters, so that they need not be asked,
	// and after address translation, as every input and forward hook is.
	priority = -10
	// vxlanPort is VXLAN's UDP port (RFC 7348, 8).
	vxlanPort = 4789
	// elementsPerMessage keeps a list of elements below a netlink attribute's 64 KiB.
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
	// sendBuffer takes the largest table in one message, which the kernel wants it in.
	sendBuffer = 32 << 20
	// receiveBuffer takes an acknowledgement for each part of it.
	receiveBuffer = 4 << 20
)

func withConn(ns *os.File, fn func(*nftables.Conn) error) error {
	c, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())), nftables.AsLasting(),
		nftables.WithSockOptions(func(s *netlink.Conn) error {
			return errors.Join(s.SetWriteBuffer(sendBuffer), s.SetReadBuffer(receiveBuffer))
		}))
	if err != nil {
		return fmt.Errorf("open an nftables socket: %w", err)
	}
	return errors.Join(fn(c), c.CloseLasting())
}

// removeTable deletes a table; none is no error, as it is made first.
func removeTable(c *nftables.Conn, t *nftables.Table) error {
	c.DelTable(c.AddTable(t))
	if err := c.Flush(); err != nil {
		return fmt.Errorf("remove the nftables table %s: %w", t.Name, err)
	}
	return nil
}

const (
	// headerLength is that of struct nfgenmsg.
	headerLength = 4
	// tableAttribute is NFTA_CHAIN_TABLE and NFTA_RULE_TABLE.
	tableAttribute = unix.NFTA_RULE_TABLE
)

// forEachInTable visits the attributes of all chains or rules of the table patchbay of a family.
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
		attrs, ours, err := patchbayAttributes(m.Data)
		if err == nil && ours {
			err = visit(attrs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// patchbayAttributes takes the attributes out of a message and reports whether it is about
// the table. Its header counts all changes of the namespace.
func patchbayAttributes(message []byte) (attrs []byte, ours bool, err error) {
	if len(message) < headerLength {
		return nil, false, nil
	}
	attrs = message[headerLength:]
	d, err := netlink.NewAttributeDecoder(attrs)
	if err != nil {
		return nil, false, err
	}
	for d.Next() {
		ours = ours || d.Type() == tableAttribute && d.String() == tableName
	}
	return attrs, ours, d.Err()
}

// exprs are some expressions of a rule.
type exprs []expr.Any

// register is the n-th of the kernel's registers of 4 bytes, from 1.
func register(n uint32) uint32 { return unix.NFT_REG32_00 + n - 1 }

func matchRegister(reg uint32, value ...byte) expr.Any {
	return &expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: value}
}

// matchSet goes on if the set has the key in the first registers.
func matchSet(s *nftables.Set) exprs {
	return exprs{&expr.Lookup{SourceRegister: register(1), SetName: s.Name, SetID: s.ID}}
}

// loadBytes reads bytes of the frame.
func loadBytes(n, offset, length uint32) exprs {
	return exprs{&expr.Payload{DestRegister: register(n), Base: expr.PayloadBaseLLHeader, Offset: offset, Len: length}}
}

// matchBytes goes on if the frame has the bytes at the offset.
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

// linkKey is a link's name as linkInto reads it.
func linkKey(link string) []byte {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name[:unix.IFNAMSIZ-1], link)
	return name
}
