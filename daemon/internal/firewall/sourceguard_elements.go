// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"maps"
	"net"
	"slices"

	"github.com/google/nftables"
)

// Sets of the table netdev patchbay. All keys begin with the link's name and a MAC.
const (
	// setMACs are the MACs that may send from :: and 0.0.0.0.
	setMACs = "macs"
	// setProbers are the MACs of links: the node itself probes for conflicts of any address.
	setProbers = "probers"
	// setV4 and setV6 are the addresses that a MAC may send from.
	setV4 = "addresses4"
	setV6 = "addresses6"
	// setLinkLocal6 are link-local addresses of IPVLAN slaves. IPVLAN writes the slave's number into
	// two bytes in the middle of the interface identifier, which are 0 in the set.
	setLinkLocal6 = "locals6"
)

// guardSets are the sets, in the table's order.
func guardSets() []*nftables.Set {
	t := netdevTable()
	set := func(name string, types ...nftables.SetDatatype) *nftables.Set {
		types = append([]nftables.SetDatatype{nftables.TypeIFName, nftables.TypeEtherAddr}, types...)
		return &nftables.Set{Table: t, Name: name, KeyType: nftables.MustConcatSetType(types...), Concatenation: true}
	}
	return []*nftables.Set{
		set(setMACs), set(setProbers), set(setV4, nftables.TypeIPAddr),
		set(setV6, nftables.TypeIP6Addr), set(setLinkLocal6, nftables.TypeIP6Addr),
	}
}

func netdevTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyNetdev, Name: tableName}
}

// sourceIndex has the permitted interfaces by link and by the name that Permit got, also those of
// links that are not guarded.
type sourceIndex map[string]map[string]Source

func (x sourceIndex) record(name string, s Source) {
	if x[s.Link] == nil {
		x[s.Link] = map[string]Source{}
	}
	x[s.Link][name] = s
}

func (x sourceIndex) remove(link, name string) {
	delete(x[link], name)
	if len(x[link]) == 0 {
		delete(x, link)
	}
}

// podElements are the elements of a source and of its Pod's other sources on the link. Parent is
// the link's MAC.
func (x sourceIndex) podElements(parent net.HardwareAddr, s Source) elements {
	e := elements{}
	list := []Source{s}
	for _, other := range x[s.Link] {
		if s.Pod != "" && other.Pod == s.Pod {
			list = append(list, other)
		}
	}
	e.addPod(parent, list)
	return e
}

// linkElements are the elements of all sources of a link with the MAC parent.
func (x sourceIndex) linkElements(link string, parent net.HardwareAddr) elements {
	e := elements{}
	e.add(setMACs, link, parent)
	e.add(setProbers, link, parent)
	pods := map[string][]Source{}
	for name, s := range x[link] {
		key := "pod " + s.Pod
		if s.Pod == "" {
			key = "source " + name
		}
		pods[key] = append(pods[key], s)
	}
	for _, list := range pods {
		e.addPod(parent, list)
	}
	return e
}

// allElements are the elements of the guarded links.
func (x sourceIndex) allElements(guardedLinks map[string]net.HardwareAddr) elements {
	all := elements{}
	for link, mac := range guardedLinks {
		for set, keys := range x.linkElements(link, mac) {
			if all[set] == nil {
				all[set] = map[string]bool{}
			}
			maps.Copy(all[set], keys)
		}
	}
	return all
}

// elements are the keys of sets, by the name of the set.
type elements map[string]map[string]bool

// addPod adds the sources of a Pod's interfaces on one link: each may send with the addresses of
// the others, too.
func (e elements) addPod(parent net.HardwareAddr, sources []Source) {
	for _, s := range sources {
		e.addSource(parent, s)
		for _, of := range sources {
			if of.MAC != nil && s.V4.IsValid() {
				e.add(setV4, s.Link, of.MAC, s.V4.AsSlice()...)
			}
			if of.MAC != nil && s.V6.IsValid() {
				e.add(setV6, s.Link, of.MAC, s.V6.AsSlice()...)
			}
		}
	}
}

// addSource adds the MACs and addresses of one source; parent is the link's MAC.
func (e elements) addSource(parent net.HardwareAddr, s Source) {
	mac := s.MAC
	if mac == nil {
		mac = parent
	}
	if len(mac) != macLen { // not an Ethernet link: no source can be permitted
		return
	}
	e.add(setMACs, s.Link, mac)
	if s.V4.IsValid() {
		e.add(setV4, s.Link, mac, s.V4.AsSlice()...)
	}
	if !s.V6.IsValid() {
		return // the slave has IPv6 disabled
	}
	e.add(setV6, s.Link, mac, s.V6.AsSlice()...)
	if s.MAC == nil {
		e.add(setLinkLocal6, s.Link, mac, linkLocalAddress(mac, mac[0], 0, 0)...)
	} else {
		e.add(setV6, s.Link, mac, linkLocalAddress(mac, mac[0]^2, 0xff, 0xfe)...)
	}
}

// macLen is the length of an Ethernet MAC in bytes.
const macLen = 6

// linkLocalAddress is fe80::/64 with an interface identifier that is derived from a MAC.
func linkLocalAddress(mac net.HardwareAddr, first, fourth, fifth byte) []byte {
	return []byte{0: 0xfe, 1: 0x80, 8: first, 9: mac[1], 10: mac[2], 11: fourth, 12: fifth, 13: mac[3], 14: mac[4], 15: mac[5]}
}

func (e elements) add(set, link string, mac net.HardwareAddr, a ...byte) {
	if e[set] == nil {
		e[set] = map[string]bool{}
	}
	e[set][string(slices.Concat(linkKey(link), mac, []byte{0, 0}, a))] = true // a MAC fills two registers
}

// inSet lists the elements of a set, in order.
func (e elements) inSet(set string) []nftables.SetElement {
	var list []nftables.SetElement
	for key := range e[set] {
		list = append(list, nftables.SetElement{Key: []byte(key)})
	}
	slices.SortFunc(list, func(a, b nftables.SetElement) int { return slices.Compare(a.Key, b.Key) })
	return list
}

// subtract returns the elements that o does not have.
func (e elements) subtract(o elements) elements {
	left := elements{}
	for set, keys := range e {
		for key := range keys {
			if o[set][key] {
				continue
			}
			if left[set] == nil {
				left[set] = map[string]bool{}
			}
			left[set][key] = true
		}
	}
	return left
}
