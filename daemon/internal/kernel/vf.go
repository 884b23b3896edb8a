// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Link states of a virtual function (IFLA_VF_LINK_STATE in <linux/if_link.h>).
const (
	// LinkStateAuto follows the physical function's link.
	LinkStateAuto = "auto"
	// LinkStateEnable is always up: functions of one NIC reach each other without a cable.
	LinkStateEnable = "enable"
	// LinkStateDisable is always down.
	LinkStateDisable = "disable"
)

// VLAN protocols of a virtual function (EtherTypes of IEEE 802.1Q).
const (
	// VLAN8021Q is the protocol of customer VLANs.
	VLAN8021Q = unix.ETH_P_8021Q
	// VLAN8021AD is the protocol of service VLANs ("QinQ").
	VLAN8021AD = unix.ETH_P_8021AD
)

// VFSettings are settings of a virtual function that its physical function keeps. A nil value is not
// set: it stays as it is, or the driver does not report it.
type VFSettings struct {
	// MAC that the function must have. Zero bytes leave the choice to the function.
	MAC net.HardwareAddr `json:"mac,omitempty"`
	// VLAN of all frames of the function.
	VLAN *VFVLAN `json:"vlan,omitempty"`
	// SpoofCheck drops frames with a source MAC that is not the function's.
	SpoofCheck *bool `json:"spoofCheck,omitempty"`
	// Trust lets the function change its MAC and receive all frames.
	Trust *bool `json:"trust,omitempty"`
	// LinkState is one of the LinkState constants.
	LinkState *string `json:"linkState,omitempty"`
	// Rate limits what the function sends.
	Rate *VFRate `json:"rate,omitempty"`
}

// VFVLAN is the VLAN that the physical function adds to the frames of a virtual one, and removes.
type VFVLAN struct {
	// ID is 1-4094, or 0 for no VLAN.
	ID int `json:"id"`
	// QoS is the priority (IEEE 802.1p), 0-7.
	QoS int `json:"qos,omitempty"`
	// Protocol is VLAN8021Q or VLAN8021AD. 0 is VLAN8021Q.
	Protocol int `json:"protocol,omitempty"`
}

// VFRate are limits in Mbit/s. 0 is no limit.
type VFRate struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// vfOption is one request to the driver of a physical function.
type vfOption struct {
	// name is that of the network's option, for errors.
	name  string
	value any
	attr  *nl.RtAttr
}

// options returns the requests that make the settings those of s, without those that present has
// already. The MAC comes first: with spoof check, frames of any other are dropped.
func (s *VFSettings) options(vf int, present *VFSettings) []vfOption {
	return slices.Concat(
		newVFOption("MAC address", s.mac(), present.mac(), func(mac macAddress) *nl.RtAttr {
			return nl.NewRtAttr(nl.IFLA_VF_MAC, append(words(vf), append(mac[:], make([]byte, maxVFMAC-len(mac))...)...))
		}),
		newVFOption("vlan", normalVLAN(s.VLAN), normalVLAN(present.VLAN), func(v VFVLAN) *nl.RtAttr { return v.attribute(vf) }),
		newVFOption("spoof_check", s.SpoofCheck, present.SpoofCheck, func(on bool) *nl.RtAttr {
			return nl.NewRtAttr(nl.IFLA_VF_SPOOFCHK, words(vf, bit(on)))
		}),
		newVFOption("trust", s.Trust, present.Trust, func(on bool) *nl.RtAttr {
			return nl.NewRtAttr(nl.IFLA_VF_TRUST, words(vf, bit(on)))
		}),
		newVFOption("link_state", s.LinkState, present.LinkState, func(state string) *nl.RtAttr {
			return nl.NewRtAttr(nl.IFLA_VF_LINK_STATE, words(vf, slices.Index(linkStates(), state)))
		}),
		newVFOption("min_tx_rate, max_tx_rate", s.Rate, present.Rate, func(r VFRate) *nl.RtAttr {
			return nl.NewRtAttr(nl.IFLA_VF_RATE, words(vf, r.Min, r.Max))
		}),
	)
}

// newVFOption returns the request that changes one setting, if it is to be changed.
func newVFOption[T comparable](name string, want, present *T, attr func(T) *nl.RtAttr) []vfOption {
	if want == nil || present != nil && *want == *present {
		return nil
	}
	return []vfOption{{name: name, value: *want, attr: attr(*want)}}
}

// macAddress is a comparable net.HardwareAddr.
type macAddress [6]byte

// String returns the colon notation.
func (m macAddress) String() string { return net.HardwareAddr(m[:]).String() }

func (s *VFSettings) mac() *macAddress {
	if len(s.MAC) != len(macAddress{}) {
		return nil
	}
	mac := macAddress(s.MAC)
	return &mac
}

// maxVFMAC is the size of a MAC in struct ifla_vf_mac.
const maxVFMAC = 32

// linkStates returns the names by their numbers in the kernel.
func linkStates() []string { return []string{LinkStateAuto, LinkStateEnable, LinkStateDisable} }

// normalVLAN returns v with the default protocol, and without what a function without VLAN does not have.
func normalVLAN(v *VFVLAN) *VFVLAN {
	switch {
	case v == nil:
		return nil
	case v.ID == 0:
		return &VFVLAN{}
	case v.Protocol == 0:
		return &VFVLAN{ID: v.ID, QoS: v.QoS, Protocol: VLAN8021Q}
	}
	return v
}

// String returns the VLAN in the words of the network's options.
func (v VFVLAN) String() string {
	text := fmt.Sprintf("%d", v.ID)
	if v.QoS != 0 {
		text += fmt.Sprintf(" with vlan_qos %d", v.QoS)
	}
	if v.Protocol == VLAN8021AD {
		text += " with vlan_protocol 802.1ad"
	}
	return text
}

// attribute is IFLA_VF_VLAN, or IFLA_VF_VLAN_LIST for a protocol that the older attribute cannot have.
func (v VFVLAN) attribute(vf int) *nl.RtAttr {
	if v.Protocol != VLAN8021AD {
		return nl.NewRtAttr(nl.IFLA_VF_VLAN, words(vf, v.ID, v.QoS))
	}
	list := nl.NewRtAttr(nl.IFLA_VF_VLAN_LIST, nil)
	info := binary.BigEndian.AppendUint16(words(vf, v.ID, v.QoS), uint16(v.Protocol))
	list.AddRtAttr(nl.IFLA_VF_VLAN_INFO, append(info, 0, 0)) // padding of struct ifla_vf_vlan_info
	return list
}

// words encodes 32-bit numbers in the byte order of the machine.
func words(numbers ...int) []byte {
	var b []byte
	for _, n := range numbers {
		b = binary.NativeEndian.AppendUint32(b, uint32(n))
	}
	return b
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// parentLink is the network interface of a physical function, with the settings of its virtual ones.
type parentLink struct {
	conn      *conn
	name      string
	driver    string
	index     int
	flags     uint32
	functions map[int]VFSettings
}

// setUp sets the physical function up: its functions have no link while it is down, and drivers reject settings.
func (p *parentLink) setUp() error {
	if p.flags&unix.IFF_UP != 0 {
		return nil
	}
	if err := p.conn.setLink(p.index, true); err != nil {
		return fmt.Errorf("set %s up: %w", p.name, err)
	}
	return nil
}

// readParent reads a physical function with its virtual ones, without their counters: with those, the
// answer for more than about 200 functions is too large for a message.
func readParent(c *conn, name, driver string) (*parentLink, error) {
	const withFunctions = 1 // RTEXT_FILTER_VF
	msgs, err := c.request(unix.RTM_GETLINK, unix.NLM_F_ACK, nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(withFunctions|skipStats)),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	if errors.Is(err, unix.ENODEV) || err == nil && len(msgs) == 0 {
		return nil, fmt.Errorf("physical function %s: %w", name, errLinkNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read physical function %s: %w", name, err)
	}
	attrs, err := parseAttributes(msgs[0], unix.SizeofIfInfomsg)
	if err != nil {
		return nil, fmt.Errorf("read physical function %s: %w", name, err)
	}
	head := nl.DeserializeIfInfomsg(msgs[0])
	parent := &parentLink{conn: c, name: name, driver: driver, index: int(head.Index), flags: head.Flags, functions: map[int]VFSettings{}}
	for _, a := range attrs {
		if a.Attr.Type&^unix.NLA_F_NESTED != unix.IFLA_VFINFO_LIST {
			continue
		}
		infos, err := parseAttributes(a.Value, 0)
		if err != nil {
			return nil, fmt.Errorf("read functions of %s: %w", name, err)
		}
		for _, info := range infos {
			vf, s, err := parseVF(info.Value)
			if err != nil {
				return nil, fmt.Errorf("read functions of %s: %w", name, err)
			}
			parent.functions[vf] = s
		}
	}
	return parent, nil
}

// parseVF parses IFLA_VF_INFO. All attributes begin with the function's number.
func parseVF(data []byte) (vf int, s VFSettings, err error) {
	attrs, err := parseAttributes(data, 0)
	if err != nil {
		return 0, s, err
	}
	for _, a := range attrs {
		v := a.Value
		word := func(i int) uint32 { return binary.NativeEndian.Uint32(v[4*i:]) }
		kind := a.Attr.Type &^ unix.NLA_F_NESTED
		if size := vfAttributeSize(kind); size == 0 || len(v) < size {
			continue
		}
		switch kind {
		case nl.IFLA_VF_MAC:
			vf = int(word(0))
			s.MAC = slices.Clone(v[4:10])
		case nl.IFLA_VF_VLAN:
			if s.VLAN == nil {
				s.VLAN = &VFVLAN{ID: int(word(1)), QoS: int(word(2))}
			}
		case nl.IFLA_VF_VLAN_LIST:
			if info := nestedAttribute(v, nl.IFLA_VF_VLAN_INFO); len(info) >= 14 {
				v = info
				s.VLAN = &VFVLAN{ID: int(word(1)), QoS: int(word(2)), Protocol: int(binary.BigEndian.Uint16(info[12:]))}
			}
		case nl.IFLA_VF_SPOOFCHK:
			s.SpoofCheck = reportedBool(word(1))
		case nl.IFLA_VF_TRUST:
			s.Trust = reportedBool(word(1))
		case nl.IFLA_VF_LINK_STATE:
			if n := int(word(1)); n < len(linkStates()) {
				s.LinkState = &linkStates()[n]
			}
		case nl.IFLA_VF_RATE:
			s.Rate = &VFRate{Min: int(word(1)), Max: int(word(2))}
		}
	}
	return vf, s, nil
}

// vfAttributeSize returns the smallest size of an attribute that parseVF reads, in bytes, and 0 for others.
func vfAttributeSize(kind uint16) int {
	switch kind {
	case nl.IFLA_VF_MAC:
		return 4 + maxVFMAC
	case nl.IFLA_VF_VLAN, nl.IFLA_VF_RATE:
		return 12
	case nl.IFLA_VF_SPOOFCHK, nl.IFLA_VF_TRUST, nl.IFLA_VF_LINK_STATE:
		return 8
	case nl.IFLA_VF_VLAN_LIST:
		return 4
	}
	return 0
}

// reportedBool returns a setting that is 0 or 1. The kernel reports -1 if the driver does not report it.
func reportedBool(n uint32) *bool {
	if n > 1 {
		return nil
	}
	on := n == 1
	return &on
}

// set makes the settings of a virtual function those of want. It sends no setting that present has already. On
// error some of the settings are changed.
func (p *parentLink) set(ctx context.Context, vf int, present, want *VFSettings) error {
	for _, o := range want.options(vf, present) {
		if err := p.send(ctx, o); err != nil {
			return fmt.Errorf("%s %v: %w", o.name, o.value, err)
		}
	}
	return nil
}

// restore makes the settings that changed has those of saved. It continues after an error. A rate that the driver
// rejects is pending.
func (p *parentLink) restore(ctx context.Context, vf int, saved, changed *VFSettings) (pending *VFRate, err error) {
	present := p.functions[vf]
	var failed []error
	for _, o := range saved.only(changed).options(vf, &present) {
		err := p.send(ctx, o)
		rate, isRate := o.value.(VFRate)
		switch {
		case err == nil:
		case !o.maySkip(err):
			failed = append(failed, fmt.Errorf("restore %s %v: %w", o.name, o.value, err))
		case isRate:
			pending = &rate
		}
	}
	return pending, errors.Join(failed...)
}

// maySkip reports whether DEL may go on after a driver's answer to the request: the next Pod gets its MAC and
// rate before it can send. A driver that cannot take a MAC back leaves the function with it, which is the
// function's own.
func (o vfOption) maySkip(answer error) bool {
	_, isRate := o.value.(VFRate)
	return (isRate || o.value == any(macAddress{})) && !errors.Is(answer, ErrFunctionReset)
}

// only returns the settings of s that other has, too.
func (s *VFSettings) only(other *VFSettings) *VFSettings {
	r := *s
	if other.MAC == nil {
		r.MAC = nil
	}
	if other.VLAN == nil {
		r.VLAN = nil
	}
	if other.SpoofCheck == nil {
		r.SpoofCheck = nil
	}
	if other.Trust == nil {
		r.Trust = nil
	}
	if other.LinkState == nil {
		r.LinkState = nil
	}
	if other.Rate == nil {
		r.Rate = nil
	}
	return &r
}

// send sends one setting to the driver. Drivers answer EBUSY or EAGAIN while they reset the function, as after a
// change of its MAC.
func (p *parentLink) send(ctx context.Context, o vfOption) error {
	err := whileReset(ctx, p.driver, func() error {
		msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
		msg.Index = int32(p.index)
		list := nl.NewRtAttr(unix.IFLA_VFINFO_LIST, nil)
		list.AddRtAttr(nl.IFLA_VF_INFO, nil).AddChild(o.attr)
		return p.conn.send(unix.RTM_SETLINK, 0, msg, list)
	})
	return p.explain(o, err)
}

// explain explains a driver's answer to a setting.
func (p *parentLink) explain(o vfOption, err error) error {
	if _, isRate := o.value.(VFRate); isRate && p.flags&unix.IFF_LOWER_UP == 0 && errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: check the cable of %s (driver %s): %w", ErrNoLink, p.name, p.driver, err)
	}
	return rejected(err)
}

// rejected adds ErrRejected to an answer of a driver, unless the driver has not decided.
func rejected(err error) error {
	if err == nil || errors.Is(err, ErrFunctionReset) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrRejected, err)
}

const (
	// resetTimeout bounds the wait for a driver that resets a function. Intel's wait for up to 2.5 seconds themselves.
	resetTimeout = 3 * time.Second
	// resetPollInterval is the time between two requests to a driver. The end of a reset has no notification.
	resetPollInterval = 100 * time.Millisecond
)

// whileReset repeats a request while the driver answers that it resets the function.
func whileReset(ctx context.Context, driver string, request func() error) error {
	ctx, cancel := context.WithTimeout(ctx, resetTimeout)
	defer cancel()
	tick := time.NewTicker(resetPollInterval)
	defer tick.Stop()
	for {
		err := request()
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EAGAIN) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: driver %s is busy: %w", ErrFunctionReset, driver, err)
		case <-tick.C:
		}
	}
}
