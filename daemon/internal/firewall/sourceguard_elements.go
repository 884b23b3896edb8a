// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"net"
	"slices"

	"github.com/google/nftables"
)

// Sets of the table netdev patchbay. All keys begin with the link's name and a MAC.
const (
	// setMACs are the MACs that may send from :: and 0.0.0.0.
	setMACs = "macs"
	// setProbers are the MACs of links: the node itself probes for address conflicts with
	// any address.
	setProbers = "probers"
	// setV4 and setV6 are the addresses.
	setV4 = "addresses4"
	setV6 = "addresses6"
	// setLinkLocal6 are link-local addresses of IPVLAN, which writes the number of the slave
	// into the middle of the interface identifier: two bytes that are 0 here.
	setLinkLocal6 = "locals6"
)

// guardSets describes the sets, in the order in which the table has them.
func guardSets() []*nftables.Set {
	t := guardTable()
	set := func(name string, types ...nftables.SetDatatype) *nftables.Set {
		types = append([]nftables.SetDatatype{nftables.TypeIFName, nftables.TypeEtherAddr}, types...)
		return &nftables.Set{Table: t, Name: name, KeyType: nftables.MustConcatSetType(types...), Concatenation: true}
	}
	return []*nftables.Set{
		set(setMACs), set(setProbers), set(setV4, nftables.TypeIPAddr),
		set(setV6, nftables.TypeIP6Addr), set(setLinkLocal6, nftables.TypeIP6Addr),
	}
}

func guardTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyNetdev, Name: tableName}
}

// elements are keys by the name of their set.
type elements map[string]map[string]bool

// addPod adds what interfaces of a Pod on one link may name: each other's addresses, too.
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

// addSource adds what frames of a source may name; parent is the link's MAC.
func (e elements) addSource(parent net.HardwareAddr, s Source) {
	mac := s.MAC
	if mac == nil {
		mac = parent
	}
	if len(mac) != macLen { // of no Ethernet link: nothing can be permitted
		return
	}
	e.add(setMACs, s.Link, mac)
	if s.V4.IsValid() {
		e.add(setV4, s.Link, mac, s.V4.AsSlice()...)
	}
	if !s.V6.IsValid() {
		return // its slave has no IPv6 at all
	}
	e.add(setV6, s.Link, mac, s.V6.AsSlice()...)
	if s.MAC == nil {
		e.add(setLinkLocal6, s.Link, mac, linkLocalAddress(mac, mac[0], 0, 0)...)
	} else {
		e.add(setV6, s.Link, mac, linkLocalAddress(mac, mac[0]^2, 0xff, 0xfe)...)
	}
}

// macLen is how long the MAC of an Ethernet link is.
const macLen = 6

// linkLocalAddress is fe80::/64 with an interface identifier that is made from a MAC.
func linkLocalAddress(mac net.HardwareAddr, first, fourth, fifth byte) []byte {
	return []byte{0: 0xfe, 1: 0x80, 8: first, 9: mac[1], 10: mac[2], 11: fourth, 12: fifth, 13: mac[3], 14: mac[4], 15: mac[5]}
}

func (e elements) add(set, link string, mac net.HardwareAddr, a ...byte) {
	if e[set] == nil {
		e[set] = map[string]bool{}
	}
	e[set][string(slices.Concat(linkKey(link), mac, []byte{0, 0}, a))] = true // a MAC fills two registers
}

// inSet lists those of a set, in order.
func (e elements) inSet(set string) []nftables.SetElement {
	var list []nftables.SetElement
	for key := range e[set] {
		list = append(list, nftables.SetElement{Key: []byte(key)})
	}
	slices.SortFunc(list, func(a, b nftables.SetElement) int { return slices.Compare(a.Key, b.Key) })
	return list
}

// subtract are those that o lacks.
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
