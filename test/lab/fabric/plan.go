// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"net/netip"
)

// MaxIndex is the largest index of a node: its addresses end in 10 and the index.
const MaxIndex = 200

// Gateway is the machine's address on the management network, where the API server
// listens.
func Gateway() netip.Addr { return netip.AddrFrom4([4]byte{10, 89, 0, 1}) }

// APIPort is the API server's port.
const APIPort = 6443

// ServiceAddress is the cluster IP of the Service "kubernetes".
func ServiceAddress() netip.Addr { return netip.AddrFrom4([4]byte{10, 96, 0, 1}) }

// Port is a node's place in the fabric, by its index from 1.
type Port int

// Card is one network card of a node.
type Card struct {
	// Name in the node; Tap is its other end in the namespace.
	Name, Tap string
	MAC       string
	Prefix    netip.Prefix

	bridge string
}

// Cards are a node's cards in the order in which its kernel finds them.
func (p Port) Cards() []Card { return []Card{p.Management(), p.Trunk(), p.Second(), p.Agent()} }

// Management is the card that Kubernetes uses.
func (p Port) Management() Card {
	return p.card("ens3", bridgeManagement, 3, [4]byte{10, 89, 0, p.last()})
}

// Trunk is the card for the networks under test.
func (p Port) Trunk() Card {
	return p.card("ens4", bridgeTrunk, 4, [4]byte{192, 168, 89, p.last()})
}

// Second is one more such card, on a switch of its own.
func (p Port) Second() Card {
	return p.card("ens5", bridgeSecond, 5, [4]byte{192, 168, 90, p.last()})
}

// Agent is the card that the lab runs commands through.
func (p Port) Agent() Card {
	return p.card("agent", bridgeAgent, 9, [4]byte{169, 254, 89, p.last()})
}

// Pods is the subnet of the node's Pods on the default network.
func (p Port) Pods() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(p), 0}), 24)
}

// last is the last byte of the node's addresses.
func (p Port) last() byte { return byte(10 + p) }

func (p Port) card(name, bridge string, kind byte, address [4]byte) Card {
	const bits = 24
	return Card{
		Name:   name,
		Tap:    fmt.Sprintf("n%d-%s", p, name),
		MAC:    fmt.Sprintf("02:89:00:00:%02x:%02x", kind, byte(p)),
		Prefix: netip.PrefixFrom(netip.AddrFrom4(address), bits),
		bridge: bridge,
	}
}

// cables are the cards that can be cut.
func (p Port) cables() []Card { return []Card{p.Management(), p.Trunk(), p.Second()} }
