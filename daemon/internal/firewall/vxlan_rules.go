// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"encoding/binary"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

// Offsets of the fields that the rules load.
const (
	udpDestination = 2
	beforeVNI      = 8 + 3 // after the UDP header and most of the flags
	source4        = 12
	destination4   = 16
	source6        = 8
	destination6   = 24
)

// vxlanRules writes the sets, chains and rules of the VXLAN filter.
type vxlanRules struct {
	tableWriter
	// The fields of netwatcher.VXLANFilter; senders and VTEPs by family.
	vnis, receivers  *nftables.Set
	senders4, vteps4 *nftables.Set
	senders6, vteps6 *nftables.Set
}

// build adds the table's content, as nft would list it:
//
//	chain input {
//		type filter hook input priority -10; policy accept;
//		meta l4proto udp udp dport 4789 jump vxlan-input
//	}
//	chain vxlan-input {
//		@th,96,24 != @vnis return
//		meta nfproto ipv4 @th,96,24 . iifname @receivers iifname . ip saddr @senders4 return
//		meta nfproto ipv6 @th,96,24 . iifname @receivers iifname . ip6 saddr @senders6 return
//		counter name "received" drop
//	}
//
// and likewise for forward. All other traffic costs two comparisons. A rule that loads
// bytes past a packet's end does not match: a fragment that is too short for the ID reaches
// the last rule. The kernel reassembles IPv4 fragments before input and IPv6 fragments after
// it: for IPv6 the first fragment decides, and the kernel discards the others without it.
func (r *vxlanRules) build(want *netwatcher.VXLANFilter, counts map[string]expr.Counter) error {
	if err := r.addSets(want); err != nil {
		return err
	}
	for _, name := range []string{CounterReceived, CounterForwarded} {
		n := counts[name]
		r.conn.AddObj(&nftables.NamedObj{Table: r.table, Name: name, Type: nftables.ObjTypeCounter, Obj: &n})
	}
	input := r.addHook("input", nftables.ChainHookInput)
	r.addRule(input, matchIPv4(), loadVNI(1), loadInputLink(2), matchSet(r.receivers), loadInputLink(1), loadAddress(5, source4, 4), matchSet(r.senders4), verdictReturn())
	r.addRule(input, matchIPv6(), loadVNI(1), loadInputLink(2), matchSet(r.receivers), loadInputLink(1), loadAddress(5, source6, 16), matchSet(r.senders6), verdictReturn())
	r.addRule(input, dropWithCounter(CounterReceived))

	forward := r.addHook("forward", nftables.ChainHookForward)
	// This node is a router between nodes: the receiving node checks the sender.
	r.addRule(forward, matchIPv4(), loadInputLink(1), loadAddress(5, source4, 4), matchSet(r.senders4), verdictReturn())
	r.addRule(forward, matchIPv6(), loadInputLink(1), loadAddress(5, source6, 16), matchSet(r.senders6), verdictReturn())
	r.addRule(forward, matchIPv4(), loadAddress(1, destination4, 4), matchSet(r.vteps4), dropWithCounter(CounterForwarded))
	r.addRule(forward, matchIPv6(), loadAddress(1, destination6, 16), matchSet(r.vteps6), dropWithCounter(CounterForwarded))
	return nil
}

// addHook adds a base chain for the hook, and a second chain for packets to VXLAN's port. It
// returns the second, whose first rule lets IDs pass that are not Patchbay's.
func (r *vxlanRules) addHook(name string, hook *nftables.ChainHook) *nftables.Chain {
	accept := nftables.ChainPolicyAccept
	base := r.conn.AddChain(&nftables.Chain{
		Name: name, Table: r.table, Type: nftables.ChainTypeFilter,
		Hooknum: hook, Priority: nftables.ChainPriorityRef(priority), Policy: &accept,
	})
	vxlan := r.conn.AddChain(&nftables.Chain{Name: "vxlan-" + name, Table: r.table})
	r.addRule(base,
		exprs{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, matchRegister(1, unix.IPPROTO_UDP)},
		exprs{&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: udpDestination, Len: 2}, matchRegister(1, vxlanPort>>8, vxlanPort&0xff)},
		exprs{&expr.Verdict{Kind: expr.VerdictJump, Chain: vxlan.Name}})
	r.addRule(vxlan, loadVNI(1), matchOutsideSet(r.vnis), verdictReturn())
	return vxlan
}

// addSets adds the sets and their elements.
func (r *vxlanRules) addSets(want *netwatcher.VXLANFilter) error {
	link := nftables.TypeIFName
	var err error // of the first set that failed
	set := func(name string, keys [][]byte, types ...nftables.SetDatatype) *nftables.Set {
		s := &nftables.Set{
			Table: r.table, Name: name, KeyType: nftables.MustConcatSetType(types...),
			Concatenation: len(types) > 1, KeyByteOrder: keyByteOrder(types[0]),
		}
		if err == nil {
			err = r.addSet(s, keys)
		}
		return s
	}
	var vnis, receivers [][]byte
	for _, v := range want.VNIs {
		vnis = append(vnis, vniKey(v))
	}
	for _, e := range want.Receivers {
		receivers = append(receivers, append(vniKey(e.VNI), linkKey(e.Link)...))
	}
	senders, vteps := map[bool][][]byte{}, map[bool][][]byte{} // by whether they are IPv4
	for _, e := range want.Senders {
		senders[e.VTEP.Is4()] = append(senders[e.VTEP.Is4()], append(linkKey(e.Link), e.VTEP.AsSlice()...))
	}
	for _, a := range want.VTEPs {
		vteps[a.Is4()] = append(vteps[a.Is4()], a.AsSlice())
	}
	// "mark" is nft's only type of 32 bits that it can print in a pair; "integer" makes it abort.
	r.vnis = set("vnis", vnis, nftables.TypeMark)
	r.receivers = set("receivers", receivers, nftables.TypeMark, link)
	r.senders4 = set("senders4", senders[true], link, nftables.TypeIPAddr)
	r.senders6 = set("senders6", senders[false], link, nftables.TypeIP6Addr)
	r.vteps4 = set("vteps4", vteps[true], nftables.TypeIPAddr)
	r.vteps6 = set("vteps6", vteps[false], nftables.TypeIP6Addr)
	return err
}

// keyByteOrder is the byte order in which nft prints keys of the type.
func keyByteOrder(t nftables.SetDatatype) binaryutil.ByteOrder {
	if t == nftables.TypeMark {
		return binaryutil.NativeEndian
	}
	return binaryutil.BigEndian
}

func matchIPv4() exprs { return matchFamily(unix.NFPROTO_IPV4) }

func matchIPv6() exprs { return matchFamily(unix.NFPROTO_IPV6) }

func matchFamily(nfproto byte) exprs {
	return exprs{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register(1)}, matchRegister(register(1), nfproto)}
}

// loadVNI loads the 24 bits of the ID into register n, in host byte order.
func loadVNI(n uint32) exprs {
	reg := register(n)
	return exprs{
		&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: beforeVNI, Len: 4},
		&expr.Bitwise{SourceRegister: reg, DestRegister: reg, Len: 4, Mask: []byte{0, 0xff, 0xff, 0xff}, Xor: make([]byte, 4)},
		&expr.Byteorder{SourceRegister: reg, DestRegister: reg, Op: expr.ByteorderNtoh, Len: 4, Size: 4},
	}
}

// vniKey is an ID as loadVNI loads it.
func vniKey(id int) []byte {
	return binary.NativeEndian.AppendUint32(nil, uint32(id))
}

// loadInputLink loads the name of the link that the packet arrived on into four registers from n.
func loadInputLink(n uint32) exprs {
	return exprs{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: register(n)}}
}

func loadAddress(n, offset, length uint32) exprs {
	return exprs{&expr.Payload{DestRegister: register(n), Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length}}
}
