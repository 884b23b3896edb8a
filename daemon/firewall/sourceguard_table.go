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

// guardedPrefix begins the names of the base chains, which end in the link's.
const guardedPrefix = "link "

// apply makes the table what links and sources say; g.mu is held.
func (g *Guard) apply(c *nftables.Conn, kept []netwatcher.GuardedLink) (changed bool, err error) {
	now, err := g.describe()
	if err != nil {
		return false, err
	}
	for _, l := range kept {
		if _, ok := now[guardedPrefix+l.Name]; ok {
			g.links[l.Name] = l.MAC
		}
	}
	if len(g.links) == 0 {
		if len(now) > 0 {
			err = removeTable(c, guardTable())
		}
		if err == nil {
			g.seen = map[string]string{}
		}
		return len(now) > 0, err
	}
	if g.foreign(now) {
		g.seen = nil
		err = g.write(c)
		changed = true
	} else {
		changed, err = g.update(c, now)
	}
	if err != nil || !changed {
		return changed, err
	}
	g.seen, err = g.describe()
	return true, err
}

// foreign reports whether chains are not as they were written: another version of the
// daemon, or another program, made them.
func (g *Guard) foreign(now map[string]string) bool {
	if len(g.seen) == 0 {
		return true
	}
	for name, was := range g.seen {
		if !isGuarded(name) && now[name] != was {
			return true
		}
	}
	for name := range now {
		if _, ok := g.seen[name]; !ok {
			return true
		}
	}
	return false
}

func isGuarded(chain string) bool {
	return len(chain) > len(guardedPrefix) && chain[:len(guardedPrefix)] == guardedPrefix
}

// write replaces the table as a whole. The old chains drop until the new ones do.
func (g *Guard) write(c *nftables.Conn) error {
	t := guardTable()
	c.AddTable(t) // so that there is one to delete
	c.DelTable(t)
	c.AddTable(t)
	r := &guardRules{ruleset{conn: c, table: t}}
	all := g.all()
	for _, s := range guardSets() {
		var keys [][]byte
		for _, e := range all.of(s.Name) {
			keys = append(keys, e.Key)
		}
		if err := r.add(s, keys); err != nil {
			return fmt.Errorf("write set %s: %w", s.Name, err)
		}
	}
	r.build()
	for _, link := range slices.Sorted(maps.Keys(g.links)) {
		r.guard(link)
	}
	return flushed(c)
}

// update brings links and elements up to date in one transaction. Elements that are new come
// before the chains that need them.
func (g *Guard) update(c *nftables.Conn, now map[string]string) (changed bool, err error) {
	want := g.all()
	for _, s := range guardSets() {
		there, err := c.GetSetElements(s)
		if err != nil {
			return false, fmt.Errorf("list elements of set %s: %w", s.Name, err)
		}
		have := elements{s.Name: map[string]bool{}}
		for _, e := range there {
			have[s.Name][string(e.Key)] = true
		}
		add := elements{s.Name: want[s.Name]}.without(have).of(s.Name)
		for part := range slices.Chunk(add, elementsPerMessage) {
			changed = true
			if err := c.SetAddElements(s, part); err != nil {
				return false, err
			}
		}
		for part := range slices.Chunk(have.without(want).of(s.Name), elementsPerMessage) {
			changed = true
			if err := c.SetDeleteElements(s, part); err != nil {
				return false, err
			}
		}
	}
	r := &guardRules{ruleset{conn: c, table: guardTable()}}
	for name, was := range now {
		_, wanted := g.links[name[min(len(name), len(guardedPrefix)):]]
		if isGuarded(name) && (!wanted || was != g.seen[name]) {
			changed = true
			c.DelChain(&nftables.Chain{Table: r.table, Name: name})
		}
	}
	for _, link := range slices.Sorted(maps.Keys(g.links)) {
		if was, ok := now[guardedPrefix+link]; !ok || was != g.seen[guardedPrefix+link] {
			changed = true
			r.guard(link)
		}
	}
	if !changed {
		return false, nil
	}
	return true, flushed(c)
}

// all are the elements of all links.
func (g *Guard) all() elements {
	all := elements{}
	for link, mac := range g.links {
		for set, keys := range g.elements(link, mac) {
			if all[set] == nil {
				all[set] = map[string]bool{}
			}
			maps.Copy(all[set], keys)
		}
	}
	return all
}

func flushed(c *nftables.Conn) error {
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write the nftables table netdev %s: %w", tableName, err)
	}
	return nil
}

// describe returns the table's chains, each with its rules, as the kernel says them. Neither
// counts nor how many rules lead to a chain are part of it.
func (g *Guard) describe() (map[string]string, error) {
	raw, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: int(g.ns.Fd())})
	if err != nil {
		return nil, fmt.Errorf("open an nftables socket: %w", err)
	}
	defer raw.Close()
	chains := map[string]string{}
	for _, kind := range []int{unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETRULE} {
		err := list(raw, unix.NFPROTO_NETDEV, kind, func(attrs []byte) error {
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
