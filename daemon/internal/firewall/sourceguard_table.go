// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// linkChainPrefix is before the link's name in the names of base chains.
const linkChainPrefix = "link "

// guardTable is the table netdev patchbay of one network namespace.
type guardTable struct {
	ns *os.File
	// lastChains are the chains as the kernel described them after the last change; nil before the
	// first, and empty if the table does not exist.
	lastChains map[string]string
}

// knownMissing reports whether the last change left no table.
func (t *guardTable) knownMissing() bool { return t.lastChains != nil && len(t.lastChains) == 0 }

// apply brings the table from its present chains to the guarded links, in order, and to the
// wanted elements.
func (t *guardTable) apply(c *nftables.Conn, chains map[string]string, links []string, want elements) (changed bool, err error) {
	if len(links) == 0 {
		if len(chains) > 0 {
			err = removeTable(c, netdevTable())
		}
		if err == nil {
			t.lastChains = map[string]string{}
		}
		return len(chains) > 0, err
	}
	if t.sharedChainsChanged(chains) {
		t.lastChains = nil
		err = replaceTable(c, links, want)
		changed = true
	} else {
		changed, err = t.update(c, chains, links, want)
	}
	if err != nil || !changed {
		return changed, err
	}
	t.lastChains, err = t.chains()
	return true, err
}

// sharedChainsChanged reports whether chains other than the links' differ from those that were
// written: another version of the daemon or another program wrote them.
func (t *guardTable) sharedChainsChanged(now map[string]string) bool {
	if len(t.lastChains) == 0 {
		return true
	}
	for name, was := range t.lastChains {
		if !isLinkChain(name) && now[name] != was {
			return true
		}
	}
	for name := range now {
		if _, ok := t.lastChains[name]; !ok {
			return true
		}
	}
	return false
}

func isLinkChain(chain string) bool {
	return len(chain) > len(linkChainPrefix) && strings.HasPrefix(chain, linkChainPrefix)
}

// replaceTable replaces the table in one transaction: the old chains filter until the new ones do.
func replaceTable(c *nftables.Conn, links []string, want elements) error {
	t := netdevTable()
	c.AddTable(t) // DelTable requires that the table exists
	c.DelTable(t)
	c.AddTable(t)
	r := &sourceGuardRules{tableWriter{conn: c, table: t}}
	for _, s := range guardSets() {
		var keys [][]byte
		for _, e := range want.inSet(s.Name) {
			keys = append(keys, e.Key)
		}
		if err := r.addSet(s, keys); err != nil {
			return fmt.Errorf("write set %s: %w", s.Name, err)
		}
	}
	r.build()
	for _, link := range links {
		r.addLinkChain(link)
	}
	return flush(c)
}

// update brings links and elements up to date in one transaction. New elements are added before
// the chains that need them.
func (t *guardTable) update(c *nftables.Conn, now map[string]string, links []string, want elements) (changed bool, err error) {
	for _, s := range guardSets() {
		there, err := c.GetSetElements(s)
		if err != nil {
			return false, fmt.Errorf("list elements of set %s: %w", s.Name, err)
		}
		have := elements{s.Name: map[string]bool{}}
		for _, e := range there {
			have[s.Name][string(e.Key)] = true
		}
		add := elements{s.Name: want[s.Name]}.subtract(have).inSet(s.Name)
		for part := range slices.Chunk(add, elementsPerMessage) {
			changed = true
			if err := c.SetAddElements(s, part); err != nil {
				return false, err
			}
		}
		for part := range slices.Chunk(have.subtract(want).inSet(s.Name), elementsPerMessage) {
			changed = true
			if err := c.SetDeleteElements(s, part); err != nil {
				return false, err
			}
		}
	}
	r := &sourceGuardRules{tableWriter{conn: c, table: netdevTable()}}
	for name, was := range now {
		_, guarded := slices.BinarySearch(links, strings.TrimPrefix(name, linkChainPrefix))
		if isLinkChain(name) && (!guarded || was != t.lastChains[name]) {
			changed = true
			c.DelChain(&nftables.Chain{Table: r.table, Name: name})
		}
	}
	for _, link := range links {
		if was, ok := now[linkChainPrefix+link]; !ok || was != t.lastChains[linkChainPrefix+link] {
			changed = true
			r.addLinkChain(link)
		}
	}
	if !changed {
		return false, nil
	}
	return true, flush(c)
}

func flush(c *nftables.Conn) error {
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write the nftables table netdev %s: %w", tableName, err)
	}
	return nil
}

// chains returns a description of each chain and its rules by the chain's name, from the bytes of
// the kernel's answer. Packet counts and the number of rules that lead to a chain are left out.
func (t *guardTable) chains() (map[string]string, error) {
	raw, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: int(t.ns.Fd())})
	if err != nil {
		return nil, fmt.Errorf("open an nftables socket: %w", err)
	}
	defer raw.Close()
	chains := map[string]string{}
	for _, kind := range []int{unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETRULE} {
		err := forEachInTable(raw, unix.NFPROTO_NETDEV, kind, func(attrs []byte) error {
			chain, text, err := describeChain(attrs, kind)
			chains[chain] += text
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list chains and rules: %w", err)
		}
	}
	return chains, nil
}

// describeChain returns the chain's name and a description from the attributes of a chain or rule.
func describeChain(attrs []byte, kind int) (chain, text string, err error) {
	name := uint16(unix.NFTA_CHAIN_NAME)
	if kind == unix.NFT_MSG_GETRULE {
		name = unix.NFTA_RULE_CHAIN
	}
	d, err := netlink.NewAttributeDecoder(attrs)
	if err != nil {
		return "", "", err
	}
	for d.Next() {
		switch {
		case d.Type() == name:
			chain = d.String()
		case kind == unix.NFT_MSG_GETRULE && d.Type() == unix.NFTA_RULE_EXPRESSIONS:
			text += fmt.Sprintf("%d expressions\n", len(d.Bytes())) // expressions contain packet counts; the handle identifies the rule
		case kind == unix.NFT_MSG_GETCHAIN && d.Type() == unix.NFTA_CHAIN_USE:
		default:
			text += fmt.Sprintf("%d %d %x\n", kind, d.Type(), d.Bytes())
		}
	}
	return chain, text, d.Err()
}
