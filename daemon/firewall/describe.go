// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

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

const (
	// headerLength is that of struct nfgenmsg.
	headerLength = 4
	// tableAttribute is NFTA_CHAIN_TABLE and NFTA_RULE_TABLE.
	tableAttribute = unix.NFTA_RULE_TABLE
)

// listOurs adds what the kernel says of all chains or rules of the table.
func listOurs(c *netlink.Conn, kind int, b *strings.Builder) error {
	return list(c, unix.NFPROTO_INET, kind, func(attrs []byte) error {
		fmt.Fprintf(b, "%d %x\n", kind, attrs)
		return nil
	})
}

// list visits the attributes of all chains or rules of the table patchbay of a family.
func list(c *netlink.Conn, family byte, kind int, visit func(attrs []byte) error) error {
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
		attrs, ours, err := attributesOfOurs(m.Data)
		if err == nil && ours {
			err = visit(attrs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// attributesOfOurs takes the attributes out of a message and reports whether it is about
// the table. Its header counts all changes of the namespace.
func attributesOfOurs(message []byte) (attrs []byte, ours bool, err error) {
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
