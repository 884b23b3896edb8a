// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// NetdevState is the state of a network interface on the host.
type NetdevState struct {
	Name string `json:"name"`
	MAC  string `json:"mac"`
	MTU  int    `json:"mtu"`
	Up   bool   `json:"up,omitempty"`
	// Flags are those of netdevFlags.
	Flags uint32 `json:"flags,omitempty"`
	// TxQueueLen is the length of the transmit queue in packets.
	TxQueueLen int      `json:"txQueueLen,omitempty"`
	Group      uint32   `json:"group,omitempty"`
	Alias      string   `json:"alias,omitempty"`
	AltNames   []string `json:"altNames,omitempty"`
	// XDPProgram is the kernel's ID of the XDP program.
	XDPProgram uint32       `json:"xdpProgram,omitempty"`
	Sizes      OffloadSizes `json:"sizes,omitzero"`
}

// OffloadSizes limit the packets that the kernel exchanges with an interface for several frames at once, in bytes and
// for GSOSegments in frames.
type OffloadSizes struct {
	GSOSegments uint32 `json:"gsoSegments"`
	GSO         uint32 `json:"gso"`
	GRO         uint32 `json:"gro"`
	GSOIPv4     uint32 `json:"gsoIPv4"`
	GROIPv4     uint32 `json:"groIPv4"`
}

// netdevFlags are the flags, besides IFF_UP, that a Pod can change.
const netdevFlags = unix.IFF_PROMISC | unix.IFF_ALLMULTI | unix.IFF_MULTICAST | unix.IFF_NOARP

// functionNetdev is the network interface of a function on the host.
type functionNetdev struct {
	conn   *conn
	driver string
	attrs  *netlink.LinkAttrs
}

func (n *functionNetdev) state() *NetdevState {
	a := n.attrs
	return &NetdevState{
		Name: a.Name, MAC: a.HardwareAddr.String(), MTU: a.MTU, Up: a.Flags&net.FlagUp != 0, Flags: a.RawFlags & netdevFlags,
		TxQueueLen: a.TxQLen, Group: a.Group, Alias: a.Alias, AltNames: a.AltNames, XDPProgram: xdpProgram(a),
		Sizes: OffloadSizes{GSOSegments: a.GSOMaxSegs, GSO: a.GSOMaxSize, GRO: a.GROMaxSize, GSOIPv4: a.GSOIPv4MaxSize, GROIPv4: a.GROIPv4MaxSize},
	}
}

// fixedAttributes are what an Ethernet interface has that is for Pods: the broadcast address, and the mode in which
// its state follows the carrier. A Pod or another CNI plugin can have changed both.
func fixedAttributes() []nl.NetlinkRequestData {
	const modeDefault = 0 // IF_LINK_MODE_DEFAULT
	return []nl.NetlinkRequestData{
		nl.NewRtAttr(unix.IFLA_BROADCAST, bytes.Repeat([]byte{0xff}, len(macAddress{}))),
		nl.NewRtAttr(unix.IFLA_LINKMODE, nl.Uint8Attr(modeDefault)),
	}
}

// xdpProgram returns the ID of the interface's XDP program, or 0.
func xdpProgram(a *netlink.LinkAttrs) uint32 {
	if a.Xdp == nil {
		return 0
	}
	return a.Xdp.ProgId
}

// checkUnused returns an error if no Pod can have the interface, or if the node itself uses it: the node would lose
// addresses, links on it, or its place in a bridge or bond, for good.
func (n *functionNetdev) checkUnused() error {
	const leaveOut = "leave it out of the device pool"
	a := n.attrs
	if a.EncapType != "ether" {
		return fmt.Errorf("%w: %s is an interface of type %s, and must be an Ethernet interface: %s", ErrInvalid, a.Name, a.EncapType, leaveOut)
	}
	if a.MasterIndex != 0 {
		return fmt.Errorf("%w: %s is a port of a bridge or bond of the node: %s", ErrInvalid, a.Name, leaveOut)
	}
	uppers, err := n.conn.uppers(a.Index)
	if err != nil {
		return err
	}
	if len(uppers) > 0 {
		return fmt.Errorf("%w: link %s of the node is on %s: %s", ErrInvalid, uppers[0].name, a.Name, leaveOut)
	}
	msgs, err := n.conn.dump(unix.RTM_GETADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC))
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, m := range msgs {
		if isNodeAddress(m, a.Index) {
			return fmt.Errorf("%w: %s has an address of the node: %s", ErrInvalid, a.Name, leaveOut)
		}
	}
	return nil
}

// isNodeAddress reports whether a message is of a global address of the link that was configured. The kernel makes
// others from router advertisements, for each interface that is up: such an address, or a temporary one, is no use of
// the interface. Kernels before 5.18 do not tell who made an address.
func isNodeAddress(m []byte, index int) bool {
	const (
		attrProto = 11 // IFA_PROTO
		protoRA   = 2  // IFAPROT_KERNEL_RA
	)
	head := nl.DeserializeIfAddrmsg(m)
	if int(head.Index) != index || head.Scope != unix.RT_SCOPE_UNIVERSE {
		return false
	}
	if head.Family == unix.AF_INET6 && head.Flags&unix.IFA_F_TEMPORARY != 0 {
		return false
	}
	attrs, err := parseAttributes(m, unix.SizeofIfAddrmsg)
	return err != nil || !slices.ContainsFunc(attrs, func(a syscall.NetlinkRouteAttr) bool {
		return a.Attr.Type == attrProto && bytes.Equal(a.Value, []byte{protoRA})
	})
}

// set changes the interface. It waits while the driver resets it.
func (n *functionNetdev) set(ctx context.Context, up bool, attrs ...nl.NetlinkRequestData) error {
	return whileReset(ctx, n.driver, func() error { return n.conn.setLink(n.attrs.Index, up, attrs...) })
}

// reset sets the interface down, and removes what the Pod has changed.
func (n *functionNetdev) reset(ctx context.Context, saved *NetdevState) error {
	a := n.attrs
	foreign := slices.DeleteFunc(slices.Clone(a.AltNames), func(name string) bool { return slices.Contains(saved.AltNames, name) })
	names := n.conn.changeAltNames(unix.RTM_DELLINKPROP, a.Index, foreign...)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index, msg.Change, msg.Flags = int32(a.Index), unix.IFF_UP|netdevFlags, saved.Flags
	err := whileReset(ctx, n.driver, func() error {
		return n.conn.send(unix.RTM_NEWLINK, 0, append([]nl.NetlinkRequestData{
			msg,
			nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(saved.Alias)),
			nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(saved.Group)),
			nl.NewRtAttr(unix.IFLA_TXQLEN, nl.Uint32Attr(uint32(saved.TxQueueLen))),
		}, fixedAttributes()...)...)
	})
	if err == nil {
		err = n.resetSizes(ctx, saved.Sizes)
	}
	if err != nil {
		err = fmt.Errorf("reset %s: %w", a.Name, err)
	}
	return errors.Join(names, err)
}

// resetSizes restores the sizes of packets. The kernel's answer to one that the driver does not allow any more is no
// error: a size changes the speed only.
func (n *functionNetdev) resetSizes(ctx context.Context, saved OffloadSizes) error {
	if saved == (OffloadSizes{}) || saved == n.state().Sizes {
		return nil
	}
	var attrs []nl.NetlinkRequestData
	for _, size := range []struct {
		kind  int
		value uint32
	}{
		{unix.IFLA_GSO_MAX_SEGS, saved.GSOSegments}, {unix.IFLA_GSO_MAX_SIZE, saved.GSO}, {unix.IFLA_GRO_MAX_SIZE, saved.GRO},
		{unix.IFLA_GSO_IPV4_MAX_SIZE, saved.GSOIPv4}, {unix.IFLA_GRO_IPV4_MAX_SIZE, saved.GROIPv4},
	} {
		if size.value != 0 { // older kernels have not all
			attrs = append(attrs, nl.NewRtAttr(size.kind, nl.Uint32Attr(size.value)))
		}
	}
	if err := n.set(ctx, false, attrs...); errors.Is(err, ErrFunctionReset) {
		return err
	}
	return nil
}

// removeXDP removes the XDP programs that the Pod has attached, which stay with an interface when it moves. The kernel
// answers EBUSY if a bpf_link attaches the program: that ends with the last process or file that has it. A driver
// that resets the function can answer the same.
func (n *functionNetdev) removeXDP(saved *NetdevState) error {
	if id := xdpProgram(n.attrs); !hasXDP(n.attrs) || id != 0 && id == saved.XDPProgram {
		return nil
	}
	for _, mode := range []uint32{unix.XDP_FLAGS_SKB_MODE, unix.XDP_FLAGS_DRV_MODE, unix.XDP_FLAGS_HW_MODE} {
		xdp := nl.NewRtAttr(unix.IFLA_XDP|unix.NLA_F_NESTED, nil)
		xdp.AddRtAttr(nl.IFLA_XDP_FD, nl.Uint32Attr(^uint32(0))) // -1 detaches
		xdp.AddRtAttr(nl.IFLA_XDP_FLAGS, nl.Uint32Attr(mode))
		err := n.conn.setLink(n.attrs.Index, false, xdp)
		switch {
		case errors.Is(err, unix.EBUSY):
			return fmt.Errorf("remove XDP program from %s: a bpf_link probably attaches it: end the process that has the bpf_link, or unbind the driver %s and bind it again: %w",
				n.attrs.Name, n.driver, err)
		case err != nil && !errors.Is(err, unix.EOPNOTSUPP):
			return fmt.Errorf("remove XDP program from %s: %w", n.attrs.Name, err)
		}
	}
	return nil
}

// hasXDP reports whether an XDP program is attached in any mode. With several, the kernel reports no single ID.
func hasXDP(a *netlink.LinkAttrs) bool { return a.Xdp != nil && a.Xdp.Attached }

// restore gives an interface that is down its MAC, MTU, names and state, up to the first error. The MAC is set even if the
// interface has it, because a driver that was told to forget it must hear it again. If another link has taken a
// name, the interface does without it.
func (n *functionNetdev) restore(ctx context.Context, saved *NetdevState) error {
	mac, err := net.ParseMAC(saved.MAC)
	if err != nil {
		return fmt.Errorf("read the saved MAC: %w", err)
	}
	if err := n.restoreMAC(ctx, mac, saved); err != nil {
		return fmt.Errorf("restore MAC address %s: %w", mac, err)
	}
	if err := n.restoreMTU(ctx, saved.MTU); err != nil {
		return fmt.Errorf("restore MTU %d: %w", saved.MTU, err)
	}
	err = n.set(ctx, false, nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(saved.Name)))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("restore name %s: %w", saved.Name, err)
	}
	for _, name := range saved.AltNames {
		if err := n.conn.changeAltNames(unix.RTM_NEWLINKPROP, n.attrs.Index, name); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	if !saved.Up {
		return nil
	}
	if err := n.set(ctx, true); err != nil {
		return fmt.Errorf("set %s up: %w", saved.Name, err)
	}
	return nil
}

// restoreMTU sets the MTU. An error of the driver does not count if the interface has the MTU all the same, or if the
// MTU is out of the interface's limits, which a driver of another kind may have.
func (n *functionNetdev) restoreMTU(ctx context.Context, mtu int) error {
	err := n.set(ctx, false, nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(mtu))))
	if err == nil || errors.Is(err, ErrFunctionReset) {
		return err
	}
	head := nl.NewIfInfomsg(unix.AF_UNSPEC)
	head.Index = int32(n.attrs.Index)
	msgs, readErr := n.conn.request(unix.RTM_GETLINK, unix.NLM_F_ACK, head, nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)))
	if readErr != nil || len(msgs) == 0 {
		return errors.Join(err, readErr)
	}
	if mtuMatters(msgs[0], uint32(mtu)) {
		return rejected(err)
	}
	return nil
}

// mtuMatters reports whether the link of a message has another MTU and could have this one.
func mtuMatters(m []byte, mtu uint32) bool {
	attrs, err := parseAttributes(m, unix.SizeofIfInfomsg)
	if err != nil {
		return true
	}
	for _, a := range attrs {
		if len(a.Value) != 4 {
			continue
		}
		switch value := binary.NativeEndian.Uint32(a.Value); {
		case a.Attr.Type == unix.IFLA_MTU && value == mtu,
			a.Attr.Type == unix.IFLA_MIN_MTU && mtu < value,
			a.Attr.Type == unix.IFLA_MAX_MTU && value != 0 && mtu > value: // 0 is no limit
			return false
		}
	}
	return true
}

// restoreMAC sets the MAC. A driver that has missed that the physical function allows the MAC reads it from there
// when it sets the interface down, and igbvf can lose that message, too.
func (n *functionNetdev) restoreMAC(ctx context.Context, mac net.HardwareAddr, saved *NetdevState) error {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		err := n.set(ctx, false, nl.NewRtAttr(unix.IFLA_ADDRESS, mac))
		if !errors.Is(err, unix.EADDRNOTAVAIL) || attempt == attempts {
			return err
		}
		if err := errors.Join(n.set(ctx, true), n.reset(ctx, saved)); err != nil {
			return err
		}
	}
}
