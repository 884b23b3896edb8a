// SPDX-License-Identifier: Apache-2.0

package acd_test

import (
	"encoding/hex"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/daemon/internal/acd"
)

var own = net.HardwareAddr{2, 0, 0, 0, 0, 1}

// frame decodes hexadecimal digits; white space is ignored.
func frame(tb testing.TB, digits ...string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(strings.Join(digits, "")), ""))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// A probe has no address of its sender: 0.0.0.0 in ARP, :: in IPv6.
func TestProbe(t *testing.T) {
	t.Parallel()
	for address, want := range map[string][]byte{
		"10.0.0.5": frame(t, "ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 00000000 000000000000 0a000005", strings.Repeat("00", 18)),
		"fd00::5": frame(t, "3333ff000005 020000000001 86dd 60000000 0018 3a ff",
			"00000000000000000000000000000000 ff0200000000000000000001ff000005",
			"87 00 7d9d 00000000 fd000000000000000000000000000005"),
	} {
		if got := acd.ProbeFrame(own, netip.MustParseAddr(address)); string(got) != string(want) {
			t.Errorf("%s:\n got %x\nwant %x", address, got, want)
		}
	}
}

const (
	reply      = "020000000001 020000000009 0806 0001 0800 06 04 0002 020000000009 0a000005 000000000000 00000000"
	advertised = "333300000001 020000000009 86dd 60000000 0020 3a ff" +
		"fd000000000000000000000000000005 ff020000000000000000000000000001" +
		"88 00 5a8b 20000000 fd000000000000000000000000000005 0201 020000000009"
)

func TestClaim(t *testing.T) {
	t.Parallel()
	change := func(text, from, to string) string { return strings.Replace(text, from, to, 1) }
	for name, tc := range map[string]struct {
		reason, frame string
		addr          string
	}{
		"Reply":          {"A reply claims its sender address.", reply, "10.0.0.5"},
		"Request":        {"A request for another address claims its sender address.", change(reply, "04 0002", "04 0001"), "10.0.0.5"},
		"Padded":         {"Ethernet frames have at least 60 bytes.", reply + strings.Repeat("00", 18), "10.0.0.5"},
		"Advertisement":  {"An advertisement claims its target.", advertised, "fd00::5"},
		"PaddedIPv6":     {"A switch may add bytes.", advertised + "0000", "fd00::5"},
		"Probe":          {"The sender has no address yet.", change(reply, "0a000005", "00000000"), ""},
		"TokenRing":      {"The hardware type is not Ethernet.", change(reply, "0806 0001", "0806 0006"), ""},
		"ARPOfIPv6":      {"The protocol type is not IPv4.", change(reply, "0800 06", "86dd 06"), ""},
		"LongMAC":        {"A length in the packet is not trusted.", change(reply, "06 04", "ff 04"), ""},
		"LongAddress":    {"A length in the packet is not trusted.", change(reply, "06 04", "06 ff"), ""},
		"OtherProtocol":  {"The frame has IPv4.", change(reply, "0806", "0800"), ""},
		"NoICMP":         {"The packet has UDP.", change(advertised, "3a ff", "11 ff"), ""},
		"NotIPv6":        {"The packet has version 4 with the EtherType of IPv6.", change(advertised, "60000000", "40000000"), ""},
		"Routed":         {"A router has lowered the hop limit.", change(advertised, "3a ff", "3a fe"), ""},
		"BadChecksum":    {"The packet is damaged.", change(advertised, "5a8b", "5a8c"), ""},
		"OtherType":      {"A solicitation claims no address.", change(advertised, "88 00 ", "87 00 "), ""},
		"OtherCode":      {"Advertisements have code 0.", change(advertised, "88 00 ", "88 01 "), ""},
		"PayloadTooLong": {"A length in the packet is not trusted.", change(advertised, "0020 3a", "ffff 3a"), ""},
		"PayloadShort":   {"The packet is too short for a target.", change(advertised, "0020 3a", "0010 3a"), ""},
		"Empty":          {"The frame is empty.", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, mac, ok := acd.ParseClaim(frame(t, tc.frame))
			if ok != (tc.addr != "") || ok && (a.String() != tc.addr || mac.String() != "02:00:00:00:00:09") {
				t.Errorf("%s got %v from %v, %t; want %q", tc.reason, a, mac, ok, tc.addr)
			}
		})
	}
}

// A truncated frame is no claim, at whatever byte it ends.
func TestClaimCutOff(t *testing.T) {
	t.Parallel()
	for _, whole := range []string{reply, advertised} {
		f := frame(t, whole)
		for n := range f {
			if _, _, ok := acd.ParseClaim(f[:n]); ok {
				t.Errorf("the first %d of %d bytes are a claim", n, len(f))
			}
		}
	}
}

func FuzzClaim(f *testing.F) {
	f.Add(frame(f, reply))
	f.Add(frame(f, advertised))
	f.Add(acd.ProbeFrame(own, netip.MustParseAddr("10.0.0.5")))
	f.Add(acd.ProbeFrame(own, netip.MustParseAddr("fd00::5")))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, mac, ok := acd.ParseClaim(data)
		if ok && (a.IsUnspecified() && a.Is4() || a.IsMulticast() && a.Is6() || len(mac) != 6 || len(data) < 42) {
			t.Errorf("%v from %v in %x", a, mac, data)
		}
	})
}
