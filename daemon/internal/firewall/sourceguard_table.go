// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

// linkChainPrefix begins the names of the base chains, which end in the link's.
const linkChainPrefix = "link "

// applyTable makes the table what links and sources say; g.mu is held.
func (g *SourceGuard) applyTable(c *nftables.Conn, kept []netwatcher.GuardedLink) (changed bool, err error) {
	now, err := g.describeTable()
	if err != nil {
		return false, err
	}
	for _, l := range kept {
		if _, ok := now[linkChainPrefix+l.Name]; ok {
			g.guardedLinks[l.Name] = l.MAC
		}
	}
	if len(g.guardedLinks) == 0 {
		if len(now) > 0 {
			err = removeTable(c, guardTable())
		}
		if err == nil {
			g.lastChains = map[string]string{}
		}
		return len(now) > 0, err
	}
	if g.sharedChainsChanged(now) {
		g.lastChains = nil
		err = g.replaceTable(c)
		changed = true
	} else {
		changed, err = g.updateTable(c, now)
	}
	if err != nil || !changed {
		return changed, err
	}
	g.lastChains, err = g.describeTable()
	return true, err
}

// sharedChainsChanged reports whether chains are not as they were written: another version of the
// daemon, or another program, made them.
func (g *SourceGuard) sharedChainsChanged(now map[string]string) bool {
	if len(g.lastChains) == 0 {
		return true
	}
	for name, was := range g.lastChains {
		if !isLinkChain(name) && now[name] != was {
			return true
		}
	}
	for name := range now {
		if _, ok := g.lastChains[name]; !ok {
			return true
		}
	}
	return false
}

func isLinkChain(chain string) bool {
	return len(chain) > len(linkChainPrefix) && chain[:len(linkChainPrefix)] == linkChainPrefix
}

// replaceTable replaces the table as a whole. The old chains drop until the new ones do.
func (g *SourceGuard) replaceTable(c *nftables.Conn) error {
	t := guardTable()
	c.AddTable(t) // so that there is one to delete
	c.DelTable(t)
	c.AddTable(t)
	r := &sourceGuardRules{ruleset{conn: c, table: t}}
	all := g.allElements()
	for _, s := range guardSets() {
		var keys [][]byte
		for _, e := range all.inSet(s.Name) {
			keys = append(keys, e.Key)
		}
		if err := r.addSet(s, keys); err != nil {
			return fmt.Errorf("write set %s: %w", s.Name, err)
		}
	}
	r.build()
	for _, link := range slices.Sorted(maps.Keys(g.guardedLinks)) {
		r.addLinkChain(link)
	}
	return flush(c)
}

// updateTable brings links and elements up to date in one transaction. Elements that are new come
// before the chains that need them.
func (g *SourceGuard) updateTable(c *nftables.Conn, now map[string]string) (changed bool, err error) {
	want := g.allElements()
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
	r := &sourceGuardRules{ruleset{conn: c, table: guardTable()}}
	for name, was := range now {
		_, wanted := g.guardedLinks[name[min(len(name), len(linkChainPrefix)):]]
		if isLinkChain(name) && (!wanted || was != g.lastChains[name]) {
			changed = true
			c.DelChain(&nftables.Chain{Table: r.table, Name: name})
		}
	}
	for _, link := range slices.Sorted(maps.Keys(g.guardedLinks)) {
		if was, ok := now[linkChainPrefix+link]; !ok || was != g.lastChains[linkChainPrefix+link] {
			changed = true
			r.addLinkChain(link)
		}
	}
	if !changed {
		return false, nil
	}
	return true, flush(c)
}

// allElements are the elements of all links.
func (g *SourceGuard) allElements() elements {
	all := elements{}
	for link, mac := range g.guardedLinks {
		for set, keys := range g.linkElements(link, mac) {
			if all[set] == nil {
				all[set] = map[string]bool{}
			}
			maps.Copy(all[set], keys)
		}
	}
	return all
}

func flush(c *nftables.Conn) error {
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write the nftables table netdev %s: %w", tableName, err)
	}
	return nil
}

// describeTable returns the table's chains, each with its rules, as the kernel says them. Neither
// counts nor how many rules lead to a chain are part of it.
func (g *SourceGuard) describeTable() (map[string]string, error) {
	raw, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: int(g.ns.Fd())})
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

// describeChain takes a chain's name and the rest out of the attributes of a chain or rule.
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
			text += fmt.Sprintf("%d expressions\n", len(d.Bytes())) // they have counts; the handle tells rules apart
		case kind == unix.NFT_MSG_GETCHAIN && d.Type() == unix.NFTA_CHAIN_USE:
		default:
			text += fmt.Sprintf("%d %d %x\n", kind, d.Type(), d.Bytes())
		}
	}
	return chain, text, d.Err()
}
