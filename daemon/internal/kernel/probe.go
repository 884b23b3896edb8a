// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/daemon/internal/acd"
)

// A probe is sent three times, as a frame may be lost, and takes 120 ms in all unless every
// address is answered before. RFC 5227 (2.1.1) waits for 4 to 7 s, for links on which an answer
// takes a second; in a data centre it takes a millisecond.
const (
	probeCount    = 3
	probeInterval = 40 * time.Millisecond
)

// Prober probes for address conflicts on links of the host.
type Prober struct {
	ns   *netNamespace
	conn *conn
}

// Probe asks on a link of the host whether another host has one of the addresses, and returns
// the MACs of those that answer. The link is below the Pods' slaves, so the probes reach other
// machines and no slave of this node. It therefore works for IPVLAN, too, whose slaves have the
// link's own MAC. On a link that is down nothing answers.
func (p *Prober) Probe(ctx context.Context, parent string, addrs []netip.Addr) (map[netip.Addr]net.HardwareAddr, error) {
	link, err := p.conn.linkByName(parent)
	if errors.Is(err, errLinkNotFound) {
		err = fmt.Errorf("%s: %w", parent, ErrParentMissing)
	}
	if err != nil {
		return nil, fmt.Errorf("probe for address conflicts: %w", err)
	}
	probe := &conflictProbe{index: link.Attrs().Index, mac: link.Attrs().HardwareAddr, addrs: addrs, conflicts: map[netip.Addr]net.HardwareAddr{}}
	if len(probe.mac) != 6 {
		return nil, fmt.Errorf("probe for address conflicts on %s: %w: its MAC %q is not Ethernet's", parent, ErrInvalid, probe.mac)
	}
	defer probe.close()
	err = p.ns.do(probe.open)
	if err == nil {
		err = probe.run(ctx)
	}
	if err != nil && !errors.Is(err, unix.ENETDOWN) {
		return nil, fmt.Errorf("probe for address conflicts on %s: %w", parent, err)
	}
	return probe.conflicts, nil
}

// conflictProbe is one probe for conflicts.
type conflictProbe struct {
	index     int
	mac       net.HardwareAddr
	addrs     []netip.Addr
	conflicts map[netip.Addr]net.HardwareAddr
	sockets   []unix.PollFd
	is4       []bool // per socket
}

// open opens a packet socket for each family of the addresses.
func (p *conflictProbe) open() error {
	for _, a := range p.addrs {
		if len(p.is4) > 0 && p.is4[0] == a.Is4() {
			continue
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("open packet socket: %w", err)
		}
		p.sockets, p.is4 = append(p.sockets, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}), append(p.is4, a.Is4())
		if err := p.bind(fd, a.Is4()); err != nil {
			return fmt.Errorf("set up packet socket: %w", err)
		}
	}
	return nil
}

// bind makes a socket receive the answers of one family.
func (p *conflictProbe) bind(fd int, is4 bool) error {
	protocol := htons(unix.ETH_P_ARP)
	if !is4 {
		protocol = htons(unix.ETH_P_IPV6)
		program := advertisementFilter()
		// Answers are sent to all nodes (ff02::1), a group that a link without IPv6 has not joined.
		group := unix.PacketMreq{Ifindex: int32(p.index), Type: unix.PACKET_MR_MULTICAST, Alen: 6, Address: [8]uint8{0x33, 0x33, 0, 0, 0, 1}}
		if err := errors.Join(
			unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}),
			unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &group),
		); err != nil {
			return err
		}
	}
	return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: p.index})
}

// advertisementFilter accepts neighbour advertisements only, so that the kernel does not copy a
// NIC's other IPv6 traffic. Package acd validates them.
func advertisementFilter() []unix.SockFilter {
	const load, equal, answer = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	return []unix.SockFilter{
		{Code: load, K: 14 + 6}, // next header
		{Code: equal, K: unix.IPPROTO_ICMPV6, Jf: 3},
		{Code: load, K: 14 + 40}, // ICMPv6 type
		{Code: equal, K: acd.TypeAdvertisement, Jf: 1},
		{Code: answer, K: 1 << 16},
		{Code: answer, K: 0},
	}
}

// run sends the probes and receives the answers.
func (p *conflictProbe) run(ctx context.Context) error {
	for range probeCount {
		for _, a := range p.addrs {
			if _, answered := p.conflicts[a]; answered {
				continue
			}
			if err := p.send(a); err != nil {
				return err
			}
		}
		if err := p.awaitReplies(time.Now().Add(probeInterval)); err != nil || len(p.conflicts) == len(p.addrs) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (p *conflictProbe) send(a netip.Addr) error {
	for i, s := range p.sockets {
		if p.is4[i] != a.Is4() {
			continue
		}
		// A full queue loses a frame, as a switch may.
		if _, err := unix.Write(int(s.Fd), acd.ProbeFrame(p.mac, a)); err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("send probe for %v: %w", a, err)
		}
	}
	return nil
}

// awaitReplies reads answers until each address has one, or the deadline.
func (p *conflictProbe) awaitReplies(deadline time.Time) error {
	for len(p.conflicts) < len(p.addrs) {
		left := time.Until(deadline)
		if left <= 0 {
			return nil
		}
		_, err := unix.Poll(p.sockets, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for answers: %w", err)
		}
		for _, s := range p.sockets {
			if err := p.readReplies(int(s.Fd)); err != nil {
				return fmt.Errorf("read answers: %w", err)
			}
		}
	}
	return nil
}

// maxFramesPerRead bounds the frames that are read before the deadline is checked again, as other
// hosts may send without end.
const maxFramesPerRead = 64

// readReplies records the answers that a socket has received.
func (p *conflictProbe) readReplies(fd int) error {
	var frame [2048]byte
	for range maxFramesPerRead {
		n, from, err := unix.Recvfrom(fd, frame[:], 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			return nil
		}
		if err != nil {
			return err
		}
		// Frames of a VLAN for which the host has no link have the type PACKET_OTHERHOST.
		if ll, ok := from.(*unix.SockaddrLinklayer); !ok || ll.Pkttype == unix.PACKET_OTHERHOST || ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		p.recordClaim(frame[:n])
	}
	return nil
}

// recordClaim records the MAC of a host that claims one of the addresses. Frames with the link's
// own MAC are this node's.
func (p *conflictProbe) recordClaim(frame []byte) {
	a, mac, ok := acd.ParseClaim(frame)
	if !ok || bytes.Equal(mac, p.mac) {
		return
	}
	for _, asked := range p.addrs {
		if _, before := p.conflicts[a]; asked == a && !before {
			p.conflicts[a] = mac
		}
	}
}

func (p *conflictProbe) close() {
	for _, s := range p.sockets {
		_ = unix.Close(int(s.Fd))
	}
}

// htons returns v in network byte order.
func htons(v uint16) uint16 { return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v)) }
