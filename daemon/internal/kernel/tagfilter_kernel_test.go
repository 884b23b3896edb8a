// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

const attackVLAN = 577

// bareNIC has a node with a Pod on its NIC, which attacks a VLAN of that NIC. A Pod of the VLAN is on
// the same node, its partner on another node.
type bareNIC struct {
	kernel                     *Host
	attacker, vlanPod, partner string
	nic                        netwatcher.Spec
	// parent is the NIC's MAC, own the MAC of the attacker's interface.
	parent, own net.HardwareAddr
	// wire and victim capture the frames that leave the node, and those that reach the Pod of the
	// VLAN.
	wire, victim *sniffer
}

func newBareNIC(t *testing.T, kind string) *bareNIC {
	t.Helper()
	hosts, sw := newSwitch(t, 2, false)
	a := &bareNIC{
		kernel: openKernel(t, hosts[0]), attacker: newNamespace(t),
		nic: netwatcher.Spec{Identity: network.Link{Device: "ens4"}, Name: "ens4", Device: "ens4"},
	}
	a.vlanPod = attachOn(t, hosts[0], vlanSpec("victim.577", attackVLAN), Slave{PodInterface: PodInterface{V4: prefix("10.70.0.1/16")}, Kind: IPVLAN})
	a.partner = attachOn(t, hosts[1], vlanSpec("victim.577", attackVLAN), Slave{PodInterface: PodInterface{V4: prefix("10.70.0.2/16")}, Kind: IPVLAN})
	out, err := a.kernel.Slaves().Attach(t.Context(), withDefaults(Slave{PodInterface: PodInterface{V4: prefix("10.79.0.1/24")}, Kind: kind}, a.attacker))
	if err != nil {
		t.Fatal(err)
	}
	a.own = mac(t, out.MAC)
	within(t, hosts[0], func(h *netlink.Handle) { a.parent = find(t, h, "ens4").Attrs().HardwareAddr })
	a.wire, a.victim = newSniffer(t, sw, "port1"), newSniffer(t, a.vlanPod, "eth1")
	return a
}

func (a *bareNIC) apply(t *testing.T, op netwatcher.Op) {
	t.Helper()
	if err := a.kernel.Links().Apply(t.Context(), netwatcher.Change{Op: op, Link: a.nic}); err != nil {
		t.Fatal(err)
	}
}

// arrived reports whether a frame with the text left the node or reached the Pod of the VLAN.
func (a *bareNIC) arrived(text string) bool { return a.wire.saw(text) || a.victim.saw(text) }

// awaitFrames returns when all frames that were sent before have arrived, or were dropped.
func (a *bareNIC) awaitFrames(t *testing.T, round string) {
	t.Helper()
	eventually(t, "untagged frames and frames of the VLAN", func() bool {
		sendFrame(t, a.attacker, frame(broadcastMAC, a.own, "untagged "+round), unix.ETH_P_IP, false)
		sendFrame(t, a.partner, frame(broadcastMAC, intruderMAC, "partner "+round), unix.ETH_P_IP, false)
		sendFrame(t, a.vlanPod, frame(broadcastMAC, intruderMAC, "victim "+round), unix.ETH_P_IP, false)
		return a.wire.saw("untagged "+round) && a.victim.saw("partner "+round) && a.wire.saw("victim "+round)
	})
}

var broadcastMAC = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// tagAttack sends a frame with the text into another VLAN.
type tagAttack struct {
	reason string
	// do returns false if the kernel does not allow a Pod the attack.
	do func(t *testing.T, a *bareNIC, text string) bool
	// kind of slave that the attack requires; empty for any.
	kind string
}

func tagAttacks() map[string]tagAttack {
	type macs func(a *bareNIC) (dst, src net.HardwareAddr)
	toAll := func(a *bareNIC) (dst, src net.HardwareAddr) { return broadcastMAC, a.own }
	send := func(who macs, protocol uint16, bypass bool, tags ...[]byte) func(*testing.T, *bareNIC, string) bool {
		return func(t *testing.T, a *bareNIC, text string) bool {
			t.Helper()
			dst, src := who(a)
			sendFrame(t, a.attacker, frame(dst, src, text, tags...), protocol, bypass)
			return true
		}
	}
	inVLAN := tag(unix.ETH_P_8021Q, attackVLAN)
	return map[string]tagAttack{
		"Tag":           {reason: "A Pod with CAP_NET_RAW adds a tag.", do: send(toAll, 0, false, inVLAN)},
		"Priority":      {reason: "The tag has a priority.", do: send(toAll, 0, false, tag(unix.ETH_P_8021Q, 7<<13|attackVLAN))},
		"TagInTag":      {reason: "The receiver removes a priority tag first.", do: send(toAll, 0, false, tag(unix.ETH_P_8021Q, 0), inVLAN)},
		"ServiceTag":    {reason: "The tag is of 802.1ad.", do: send(toAll, 0, false, tag(unix.ETH_P_8021AD, attackVLAN))},
		"TagInService":  {reason: "A tag of 802.1Q follows a tag of 802.1ad.", do: send(toAll, 0, false, tag(unix.ETH_P_8021AD, 0), inVLAN)},
		"OldServiceTag": {reason: "Switches used the type before 802.1ad.", do: send(toAll, 0, false, tag(unix.ETH_P_QINQ1, attackVLAN))},
		"ProtocolIP":    {reason: "The socket declares the frame as IP.", do: send(toAll, unix.ETH_P_IP, false, inVLAN)},
		"QdiscBypass":   {reason: "The socket skips the filters of the Pod's own interface.", do: send(toAll, 0, true, inVLAN)},
		"XDPSocket":     {reason: "AF_XDP skips all filters of the Pod's own interface.", do: xdpSocket},
		"OtherSender": {
			reason: "The frame has another machine's MAC.",
			do:     send(func(*bareNIC) (dst, src net.HardwareAddr) { return broadcastMAC, intruderMAC }, 0, false, inVLAN),
		},
		"Unicast": {
			reason: "The frame is unicast.",
			do:     send(func(a *bareNIC) (dst, src net.HardwareAddr) { return intruderMAC, a.own }, 0, false, inVLAN),
		},
		"VLANLink": {reason: "A Pod with CAP_NET_ADMIN creates a VLAN link.", do: vlanInPod},
		"BackToParent": {
			reason: "IPVLAN hands a frame with its parent's MAC back to the parent, which passes it to its VLANs.", kind: IPVLAN,
			do: send(func(a *bareNIC) (dst, src net.HardwareAddr) { return a.parent, a.parent }, 0, false, inVLAN),
		},
		"BackToEveryone": {
			reason: "IPVLAN hands a frame with the broadcast MAC back to the parent, too.", kind: IPVLAN,
			do: send(func(*bareNIC) (dst, src net.HardwareAddr) { return broadcastMAC, broadcastMAC }, 0, false, inVLAN),
		},
	}
}

// xdpSocket sends the frame with AF_XDP, which requires CAP_NET_RAW.
func xdpSocket(t *testing.T, a *bareNIC, text string) (possible bool) {
	t.Helper()
	return sendByXDP(t, a.attacker, frame(broadcastMAC, a.own, text, tag(unix.ETH_P_8021Q, attackVLAN)))
}

func sendByXDP(t *testing.T, ns string, f []byte) (possible bool) {
	t.Helper()
	inside(t, ns, func() {
		fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW, 0)
		if errors.Is(err, unix.EAFNOSUPPORT) {
			return
		}
		must(t, err)
		defer unix.Close(fd)
		memory, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE)
		must(t, err)
		defer func() { must(t, unix.Munmap(memory)) }()
		copy(memory, f)
		region := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&memory[0]))), Len: uint64(len(memory)), Size: 2048}
		must(t, setsockopt(fd, unix.XDP_UMEM_REG, unsafe.Pointer(&region), unsafe.Sizeof(region)))
		for _, ring := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_TX_RING} {
			must(t, unix.SetsockoptInt(fd, unix.SOL_XDP, ring, 8))
		}
		var offsets unix.XDPMmapOffsets
		size := uint32(unsafe.Sizeof(offsets))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, unix.XDP_MMAP_OFFSETS,
			uintptr(unsafe.Pointer(&offsets)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			must(t, errno)
		}
		ring, err := unix.Mmap(fd, unix.XDP_PGOFF_TX_RING, int(offsets.Tx.Desc)+8*int(unsafe.Sizeof(unix.XDPDesc{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		must(t, err)
		defer func() { must(t, unix.Munmap(ring)) }()
		ifc, err := net.InterfaceByName("eth1")
		must(t, err)
		eventually(t, "the queue of the previous socket", func() bool {
			err = unix.Bind(fd, &unix.SockaddrXDP{Flags: unix.XDP_COPY, Ifindex: uint32(ifc.Index)})
			return !errors.Is(err, unix.EBUSY)
		})
		must(t, err)
		*(*unix.XDPDesc)(unsafe.Pointer(&ring[offsets.Tx.Desc])) = unix.XDPDesc{Len: uint32(len(f))}
		atomic.StoreUint32((*uint32)(unsafe.Pointer(&ring[offsets.Tx.Producer])), 1)
		err = unix.Send(fd, nil, unix.MSG_DONTWAIT)
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOBUFS) { // a filter dropped it
			must(t, err)
		}
		possible = true
	})
	return possible
}

func setsockopt(fd, option int, value unsafe.Pointer, size uintptr) error {
	if _, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option), uintptr(value), size, 0); errno != 0 {
		return errno
	}
	return nil
}

// vlanInPod sends the frame with a VLAN link on the Pod's interface.
func vlanInPod(t *testing.T, a *bareNIC, text string) (possible bool) {
	t.Helper()
	within(t, a.attacker, func(h *netlink.Handle) {
		link := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "tagged", ParentIndex: find(t, h, "eth1").Attrs().Index, TxQLen: -1}, VlanId: attackVLAN}
		err := h.LinkAdd(link)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
			return
		}
		must(t, err)
		possible = true
		must(t, h.LinkSetUp(link))
	})
	if possible {
		sendFrameBy(t, a.attacker, "tagged", frame(broadcastMAC, a.own, text), unix.ETH_P_IP, false)
		within(t, a.attacker, func(h *netlink.Handle) { must(t, h.LinkDel(find(t, h, "tagged"))) })
	}
	return possible
}

// No tagged frame of a slave leaves the NIC, whatever capabilities its Pod has, and the NIC's VLANs
// work. On a trunk each of the frames passes.
func TestSlavesSendNoTags(t *testing.T) {
	needs(t, IPVLAN)
	needs(t, "vlan")
	for _, kind := range []string{IPVLAN, MACVLAN} {
		t.Run(kind, func(t *testing.T) {
			a := newBareNIC(t, kind)
			a.apply(t, netwatcher.OpFilterTags)
			attacks := tagAttacks()
			for name, attack := range attacks {
				if attack.kind == "" || attack.kind == kind {
					attack.do(t, a, "filtered "+name+".")
				}
			}
			a.awaitFrames(t, "filtered")
			for name, attack := range attacks {
				if a.arrived("filtered " + name + ".") {
					t.Errorf("%s: a frame of %s passed: %s", kind, name, attack.reason)
				}
			}
			a.apply(t, netwatcher.OpAllowTags)
			for name, attack := range attacks {
				if attack.kind != "" && attack.kind != kind {
					continue
				}
				if !attack.do(t, a, "trunk "+name+".") {
					t.Logf("%s: the kernel does not allow %s", kind, name)
					continue
				}
				eventually(t, "a frame of "+name+" passes a trunk", func() bool { return a.arrived("trunk " + name + ".") })
			}
		})
	}
}

// A slave on a VLAN cannot send a second tag, which a switch would use if the outer tag is its port's
// own VLAN. Neither can a slave on a VXLAN (RFC 7348, 6.1).
func TestSlavesOfHostLinksSendNoTags(t *testing.T) {
	needs(t, "vlan")
	hosts, sw := newSwitch(t, 1, true)
	wire := newSniffer(t, sw, "port1")
	k := openKernel(t, hosts[0])
	for _, link := range []netwatcher.Spec{vlanSpec("storage.500", 500), vxlanSpec("vx_backend", 700, vtep(0).String(), "192.0.2.9")} {
		pod := attachOn(t, hosts[0], link, Slave{PodInterface: PodInterface{V4: podAddress(0)}})
		within(t, hosts[0], func(h *netlink.Handle) { // the VXLAN's peer
			must(t, h.NeighSet(&netlink.Neigh{
				LinkIndex: find(t, h, "ens4").Attrs().Index, IP: net.IPv4(192, 0, 2, 9), HardwareAddr: intruderMAC, State: netlink.NUD_PERMANENT,
			}))
		})
		for _, filtered := range []bool{false, true} {
			if filtered {
				if err := k.Links().Apply(t.Context(), netwatcher.Change{Op: netwatcher.OpFilterTags, Link: link}); err != nil {
					t.Fatal(err)
				}
			}
			tagged, plain := fmt.Sprint(link.Name, filtered, " tagged."), fmt.Sprint(link.Name, filtered, " plain.")
			sendFrame(t, pod, frame(broadcastMAC, intruderMAC, tagged, tag(unix.ETH_P_8021Q, attackVLAN)), 0, false)
			sendFrame(t, pod, frame(broadcastMAC, intruderMAC, plain), 0, false)
			eventually(t, plain, func() bool { return wire.saw(plain) })
			if wire.saw(tagged) == filtered {
				t.Errorf("%s, filtered %v: a tagged frame on the wire: %v", link.Name, filtered, wire.saw(tagged))
			}
		}
	}
	state, err := k.Links().State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range state.Links {
		if !l.TagsFiltered {
			t.Errorf("%s is filtered, and State does not report it", l.Name)
		}
	}
}

// State reports the filters after each change, and another program's filters stay.
func TestTagFilterState(t *testing.T) {
	hosts, _ := newSwitch(t, 1, false)
	k := openKernel(t, hosts[0])
	nic := netwatcher.Spec{Identity: network.Link{Device: "ens4"}, Name: "ens4", Device: "ens4"}
	step := func(op netwatcher.Op) {
		t.Helper()
		if err := k.Links().Apply(t.Context(), netwatcher.Change{Op: op, Link: nic}); err != nil {
			t.Fatalf("%s: %v", op, err)
		}
	}
	filtered := func() bool {
		t.Helper()
		state, err := k.Links().State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(state.NICs, func(n netwatcher.NIC) bool { return n.Name == "ens4" })
		return state.NICs[i].TagsFiltered
	}
	filters := func() (n int) {
		within(t, hosts[0], func(h *netlink.Handle) {
			for _, parent := range []uint32{netlink.HANDLE_MIN_EGRESS, netlink.HANDLE_MIN_INGRESS} {
				list, err := h.FilterList(find(t, h, "ens4"), parent)
				must(t, err)
				n += len(list)
			}
		})
		return n
	}
	check := func(after string, want bool, count int) {
		t.Helper()
		if got := filtered(); got != want {
			t.Errorf("%s: filtered %v, want %v", after, got, want)
		}
		if n := filters(); n != count {
			t.Errorf("%s: %d filters, want %d", after, n, count)
		}
	}
	check("at first", false, 0)
	step(netwatcher.OpAllowTags)
	step(netwatcher.OpFilterTags)
	step(netwatcher.OpFilterTags)
	check("after OpFilterTags, twice", true, 2)
	index := 0
	within(t, hosts[0], func(h *netlink.Handle) { index = find(t, h, "ens4").Attrs().Index })
	set := func(m *nl.TcMsg, filter tagFilter) {
		t.Helper()
		if err := k.conn.send(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE, m, bpfKind(), filter.options()); err != nil {
			t.Fatal(err)
		}
	}
	other := tagFilter{netlink.HANDLE_MIN_EGRESS, assemble(verdictContinue())}
	unmanaged := other.message(index)
	unmanaged.Handle = 9
	set(unmanaged, other)
	step(netwatcher.OpAllowTags)
	check("after OpAllowTags, with another program's filter", false, 1)
	step(netwatcher.OpFilterTags)
	within(t, hosts[0], func(h *netlink.Handle) {
		must(t, h.FilterDel(&netlink.GenericFilter{FilterAttrs: netlink.FilterAttrs{
			LinkIndex: find(t, h, "ens4").Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: tagPreference, Protocol: unix.ETH_P_ALL,
		}, FilterType: "bpf"}))
	})
	check("after one filter was deleted", false, 2)
	// A filter of an older version is replaced.
	step(netwatcher.OpFilterTags)
	set(other.message(index), other)
	check("an older version", false, 3)
	step(netwatcher.OpFilterTags)
	check("an older version is replaced", true, 3)
	if err := k.Links().RemoveTagFilters(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("Patchbay leaves", false, 1)
}

// A filter that a user deleted is added again.
func TestTagFilterIsRestored(t *testing.T) {
	hosts, _ := newSwitch(t, 1, false)
	flat := &network.Network{Ref: network.Ref{Kind: "ClusterNetwork", Name: "flat"}, UID: "flat", ID: "flat", Type: "macvlan", Device: "ens4"}
	r := watcherOf(t, hosts[0], &cluster{nets: []*network.Network{flat}})
	k := openKernel(t, hosts[0])
	filtered := func() bool {
		state, err := k.Links().State(t.Context())
		return err == nil && slices.ContainsFunc(state.NICs, func(n netwatcher.NIC) bool { return n.Name == "ens4" && n.TagsFiltered })
	}
	if name, err := r.Parent(t.Context(), flat); name != "ens4" || err != nil || !filtered() {
		t.Fatalf("a Pod gets %q, %v; filtered %v", name, err, filtered())
	}
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() { stop(); must(t, <-done) })
	for _, remove := range []func(h *netlink.Handle, ens4 netlink.Link) error{
		func(h *netlink.Handle, ens4 netlink.Link) error {
			return h.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: ens4.Attrs().Index, Handle: netlink.HANDLE_CLSACT & 0xffff0000, Parent: netlink.HANDLE_CLSACT}, QdiscType: "clsact"})
		},
		func(h *netlink.Handle, ens4 netlink.Link) error {
			return h.FilterDel(&netlink.GenericFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: ens4.Attrs().Index, Parent: netlink.HANDLE_MIN_EGRESS, Priority: tagPreference, Protocol: unix.ETH_P_ALL}, FilterType: "bpf"})
		},
	} {
		within(t, hosts[0], func(h *netlink.Handle) { must(t, remove(h, find(t, h, "ens4"))) })
		eventually(t, "the filter", filtered)
	}
}

// frame returns an Ethernet frame with the tags, outermost first, and a packet to the victim.
func frame(dst, src net.HardwareAddr, text string, tags ...[]byte) []byte {
	f := slices.Concat(dst, src)
	for _, tag := range tags {
		f = append(f, tag...)
	}
	ip := ipHeader(netip.MustParseAddr("10.70.66.6"), podAddress(0).Addr(), len(text), 0, false)
	return slices.Concat(f, []byte{0x08, 0x00}, ip, []byte(text))
}

// tag returns a VLAN tag (IEEE 802.1Q, 9.3): TPID and identifier.
func tag(tpid, vlan uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, tpid), vlan)
}

func sendFrame(t *testing.T, ns string, frame []byte, protocol uint16, bypass bool) {
	t.Helper()
	sendFrameBy(t, ns, "eth1", frame, protocol, bypass)
}

// sendFrameBy sends a frame by a link, as a program with CAP_NET_RAW can.
func sendFrameBy(t *testing.T, ns, link string, frame []byte, protocol uint16, bypass bool) {
	t.Helper()
	inside(t, ns, func() {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		must(t, err)
		defer unix.Close(fd)
		if bypass {
			must(t, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1))
		}
		ifc, err := net.InterfaceByName(link)
		must(t, err)
		err = unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifc.Index, Protocol: nl.Swap16(protocol)})
		if !errors.Is(err, unix.ENOBUFS) { // a filter dropped it
			must(t, err)
		}
	})
}

// sniffer has the frames that an interface received.
type sniffer struct {
	mu     sync.Mutex
	frames []byte
}

func newSniffer(t *testing.T, ns, link string) *sniffer {
	t.Helper()
	c, fd := &sniffer{}, -1
	inside(t, ns, func() {
		var err error
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(nl.Swap16(unix.ETH_P_ALL)))
		must(t, err)
		ifc, err := net.InterfaceByName(link)
		must(t, err)
		must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: ifc.Index, Protocol: nl.Swap16(unix.ETH_P_ALL)}))
		must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		for {
			select {
			case <-stop:
				return
			default:
			}
			n, from, err := unix.Recvfrom(fd, buf, 0)
			if ll, ok := from.(*unix.SockaddrLinklayer); err == nil && ok && ll.Pkttype != unix.PACKET_OUTGOING {
				c.mu.Lock()
				c.frames = append(c.frames, buf[:n]...)
				c.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done; _ = unix.Close(fd) })
	return c
}

func (c *sniffer) saw(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Contains(c.frames, []byte(text))
}
