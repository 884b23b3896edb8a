// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// event returns the kernel's message about a link.
func event(kind uint16, family, index int, name string, mtu uint32, flags uint32) *syscall.NetlinkMessage {
	head := nl.NewIfInfomsg(family)
	head.Index, head.Flags = int32(index), flags
	data := head.Serialize()
	data = append(data, nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)).Serialize()...)
	data = append(data, nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(mtu)).Serialize()...)
	return &syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: data}
}

func address(index uint32) *syscall.NetlinkMessage {
	head := nl.NewIfAddrmsg(unix.AF_INET)
	head.Index = index
	return &syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.RTM_NEWADDR}, Data: head.Serialize()}
}

func TestWatcherReportsRelevantChanges(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		event  *syscall.NetlinkMessage
		want   []string
	}{
		"Same":      {"A slave was created or deleted.", event(unix.RTM_NEWLINK, 0, 4, "ens4", 1500, unix.IFF_UP), nil},
		"Promisc":   {"The flag does not matter.", event(unix.RTM_NEWLINK, 0, 4, "ens4", 1500, unix.IFF_UP|unix.IFF_PROMISC), nil},
		"Down":      {"The link was set down.", event(unix.RTM_NEWLINK, 0, 4, "ens4", 1500, 0), []string{"ens4"}},
		"MTU":       {"The MTU changed.", event(unix.RTM_NEWLINK, 0, 4, "ens4", 9000, unix.IFF_UP), []string{"ens4"}},
		"Renamed":   {"Both names are reported.", event(unix.RTM_NEWLINK, 0, 4, "ens5", 1500, unix.IFF_UP), []string{"ens5", "ens4"}},
		"Gone":      {"The link was deleted.", event(unix.RTM_DELLINK, 0, 4, "ens4", 1500, unix.IFF_UP), []string{"ens4"}},
		"New":       {"The link was created.", event(unix.RTM_NEWLINK, 0, 5, "ens5", 1500, 0), []string{"ens5"}},
		"Port":      {"An event about a bridge's port is not about the link.", event(unix.RTM_DELLINK, unix.AF_BRIDGE, 4, "ens4", 0, 0), nil},
		"Address":   {"The NIC's first address is the VTEP.", address(4), []string{"ens4"}},
		"OfUnknown": {"The link of the address is not known.", address(9), []string{""}},
		"Short":     {"The message is truncated.", &syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.RTM_NEWLINK}}, nil},
		"Broken":    {"The message cannot be parsed, and may be about any link.", broken(), []string{""}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			w := &linkWatcher{known: map[int]linkFingerprint{}, changed: func(string) {}}
			w.handleMessage(event(unix.RTM_NEWLINK, 0, 4, "ens4", 1500, unix.IFF_UP))
			w.changed = func(name string) { got = append(got, name) }
			w.handleMessage(tc.event)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// broken returns a message with an attribute that is longer than the message.
func broken() *syscall.NetlinkMessage {
	m := event(unix.RTM_NEWLINK, 0, 4, "ens4", 1500, 0)
	m.Data[unix.SizeofIfInfomsg] = 0xff
	return m
}
