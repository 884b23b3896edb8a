// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// serialize returns a message with attributes.
func serialize(head nl.NetlinkRequestData, attrs ...*nl.RtAttr) []byte {
	m := head.Serialize()
	for _, a := range attrs {
		m = append(m, a.Serialize()...)
	}
	return m
}

// Only an address that was configured shows that the node uses the interface.
func TestIsNodeAddress(t *testing.T) {
	t.Parallel()
	message := func(index int, scope, flags uint8, attrs ...*nl.RtAttr) []byte {
		head := nl.NewIfAddrmsg(unix.AF_INET6)
		head.Index, head.Scope, head.Flags = uint32(index), scope, flags
		return serialize(head, attrs...)
	}
	proto := func(n uint8) *nl.RtAttr { return nl.NewRtAttr(11, nl.Uint8Attr(n)) }
	cases := map[string]struct {
		reason  string
		message []byte
		want    bool
	}{
		"Static":    {"An administrator has added it.", message(7, unix.RT_SCOPE_UNIVERSE, unix.IFA_F_PERMANENT), true},
		"Proto":     {"A program names itself in the address.", message(7, unix.RT_SCOPE_UNIVERSE, 0, proto(99)), true},
		"Router":    {"The interface was up, and a router advertised a prefix.", message(7, unix.RT_SCOPE_UNIVERSE, 0, proto(2)), false},
		"Temporary": {"The kernel makes temporary addresses beside others.", message(7, unix.RT_SCOPE_UNIVERSE, unix.IFA_F_TEMPORARY), false},
		"LinkLocal": {"Each interface that is up has one.", message(7, unix.RT_SCOPE_LINK, unix.IFA_F_PERMANENT), false},
		"OtherLink": {"Another interface has the address.", message(8, unix.RT_SCOPE_UNIVERSE, unix.IFA_F_PERMANENT), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := isNodeAddress(tc.message, 7); got != tc.want {
				t.Errorf("%s got %t", tc.reason, got)
			}
		})
	}
}

// DEL reports a former MTU that the driver rejects, but for one that the interface cannot have.
func TestMTUMatters(t *testing.T) {
	t.Parallel()
	message := func(mtu, lowest, highest uint32) []byte {
		return serialize(nl.NewIfInfomsg(unix.AF_UNSPEC), nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(mtu)),
			nl.NewRtAttr(unix.IFLA_MIN_MTU, nl.Uint32Attr(lowest)), nl.NewRtAttr(unix.IFLA_MAX_MTU, nl.Uint32Attr(highest)))
	}
	cases := map[string]struct {
		reason  string
		message []byte
		want    bool
	}{
		"Differs":  {"The next Pod would have the former Pod's MTU.", message(1400, 68, 9216), true},
		"NoLimit":  {"Some drivers have no highest MTU.", message(1400, 68, 0), true},
		"Same":     {"The driver has set it before its error.", message(1500, 68, 9216), false},
		"TooLarge": {"The driver now bound has smaller buffers.", message(1400, 68, 1450), false},
		"TooSmall": {"The driver now bound has a higher limit.", message(2000, 1600, 9216), false},
		"Damaged":  {"Without an answer, the driver's error counts.", []byte{1}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := mtuMatters(tc.message, 1500); got != tc.want {
				t.Errorf("%s got %t", tc.reason, got)
			}
		})
	}
}
