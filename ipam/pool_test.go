// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"math"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pool makes a pool of a subnet, with the dynamic range and reserved addresses.
func pool(tb testing.TB, cidr, start, end string, reserved ...string) *Pool {
	tb.Helper()
	p, err := New(config(cidr, start, end, reserved...))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func config(cidr, start, end string, reserved ...string) Config {
	cfg := Config{CIDR: netip.MustParsePrefix(cidr), Start: addr(start), End: addr(end)}
	for _, r := range reserved {
		cfg.Reserved = append(cfg.Reserved, addr(r))
	}
	return cfg
}

func addr(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

func texts(addrs []netip.Addr) []string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return out
}

func TestAllocateNextGivesEachAddressOnce(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason           string
		cidr, start, end string
		reserved         []string
		want             []string
	}{
		"Slash30": {
			reason: "network and broadcast are not handed out",
			cidr:   "10.0.0.0/30", want: []string{"10.0.0.1", "10.0.0.2"},
		},
		"Slash31": {
			reason: "RFC 3021: both addresses of a /31 are hosts",
			cidr:   "10.0.0.4/31", want: []string{"10.0.0.4", "10.0.0.5"},
		},
		"Slash32": {reason: "one host", cidr: "10.0.0.4/32", want: []string{"10.0.0.4"}},
		"Slash127": {
			reason: "RFC 6164: both addresses of a /127 are hosts",
			cidr:   "fd00::/127", want: []string{"fd00::", "fd00::1"},
		},
		"Slash128": {reason: "one host", cidr: "fd00::9/128", want: []string{"fd00::9"}},
		"Slash126": {
			reason: "the first is the subnet-router anycast address",
			cidr:   "fd00::/126", want: []string{"fd00::1", "fd00::2"},
		},
		"Range": {
			reason: "only the dynamic range, its ends included",
			cidr:   "10.0.0.0/24", start: "10.0.0.9", end: "10.0.0.11",
			want: []string{"10.0.0.9", "10.0.0.10", "10.0.0.11"},
		},
		"Reserved": {
			reason: "gateways stay free; those of another subnet do not matter",
			cidr:   "10.0.0.0/29", reserved: []string{"10.0.0.1", "10.0.0.4", "10.9.9.9", "fd00::1"},
			want: []string{"10.0.0.2", "10.0.0.3", "10.0.0.5", "10.0.0.6"},
		},
		"AcrossPages": {
			reason: "a range may begin in one page and end in another",
			cidr:   "10.0.0.0/16", start: "10.0.3.254", end: "10.0.4.1",
			want: []string{"10.0.3.254", "10.0.3.255", "10.0.4.0", "10.0.4.1"},
		},
		"EndOfAllAddresses": {
			reason: "no wrap behind the last address there is",
			cidr:   "255.255.255.0/24", start: "255.255.255.253", end: "255.255.255.255",
			want: []string{"255.255.255.253", "255.255.255.254"},
		},
		"FarInASlash8": {
			reason: "offsets of more than 64 bits",
			cidr:   "fd00::/8", start: "fdff:ffff:ffff:ffff:ffff:ffff:ffff:fffd",
			want: []string{"fdff:ffff:ffff:ffff:ffff:ffff:ffff:fffd", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"},
		},
		"AllReserved": {
			reason: "nothing to hand out is not an endless search",
			cidr:   "10.0.0.0/30", reserved: []string{"10.0.0.1", "10.0.0.2"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pool(t, tc.cidr, tc.start, tc.end, tc.reserved...)
			if got := p.Capacity(); got != int64(len(tc.want)) {
				t.Errorf("%s: Capacity() = %d, want %d", tc.reason, got, len(tc.want))
			}
			got := p.AllocateN(nil, len(tc.want)+1)
			if diff := cmp.Diff(tc.want, texts(got)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			if got := p.AllocatedDynamic(); got != int64(len(tc.want)) {
				t.Errorf("%s: InUse() = %d, want %d", tc.reason, got, len(tc.want))
			}
			if diff := cmp.Diff(texts(slices.Collect(p.All())), texts(got)); diff != "" {
				t.Errorf("%s: All() differs from what was handed out:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestAllocateNextReusesFreedAddressesLast(t *testing.T) {
	t.Parallel()
	p := pool(t, "10.0.0.0/29", "", "")
	got := p.AllocateN(nil, 3)
	p.Release(got[0])
	p.Release(got[1])
	got = p.AllocateN(got, 5)
	want := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.1", "10.0.0.2"}
	if diff := cmp.Diff(want, texts(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAllocate(t *testing.T) {
	t.Parallel()
	p := pool(t, "10.0.0.0/24", "10.0.0.100", "10.0.0.109", "10.0.0.100", "10.0.0.1")
	cases := map[string]struct {
		reason, addr string
		want         error
	}{
		"OutsideOfRange": {"static addresses may lie anywhere in the subnet", "10.0.0.7", nil},
		"InRange":        {"or in the dynamic range", "10.0.0.105", nil},
		"Gateway":        {"a reserved address can be had by name", "10.0.0.1", nil},
		"Network":        {"not the network address", "10.0.0.0", errUnusable},
		"Broadcast":      {"not the broadcast address", "10.0.0.255", errUnusable},
		"Outside":        {"not an address of another subnet", "10.0.1.0", errOutsideSubnet},
		"OtherFamily":    {"nor of the other family", "fd00::1", errOutsideSubnet},
		"Mapped":         {"nor an IPv4 address in IPv6's clothes", "::ffff:10.0.0.8", errOutsideSubnet},
	}
	for name, tc := range cases {
		if err := p.Allocate(addr(tc.addr)); !errors.Is(err, tc.want) {
			t.Errorf("%s: %s: Claim(%s) = %v, want %v", name, tc.reason, tc.addr, err, tc.want)
		}
	}
	if err := p.Allocate(addr("10.0.0.105")); !errors.Is(err, ErrAllocated) {
		t.Errorf("second claim: %v, want %v", err, ErrAllocated)
	}
	if got := p.AllocateN(nil, 20); len(got) != 8 {
		t.Errorf("Next gave %v, want the range without 10.0.0.100 (reserved) and 10.0.0.105 (taken)", got)
	}
	if p.Allocated() != 11 || p.AllocatedDynamic() != 9 || p.Capacity() != 9 {
		t.Errorf("allocated %d, in use %d of %d; want 11, 9 of 9", p.Allocated(), p.AllocatedDynamic(), p.Capacity())
	}
}

func TestReleaseTwiceIsANoop(t *testing.T) {
	t.Parallel()
	p := pool(t, "fd00::/64", "", "")
	a, _ := p.AllocateNext()
	if !p.Release(a) || p.Release(a) || p.Release(addr("fd01::1")) || p.Release(addr("fd00::77")) {
		t.Error("want true once and for the address in use only")
	}
	if p.Allocated() != 0 || p.Has(a) {
		t.Errorf("%d addresses are left", p.Allocated())
	}
}

func TestMarkAllocated(t *testing.T) {
	t.Parallel()
	p := pool(t, "10.0.0.0/29", "", "")
	if !p.MarkAllocated(addr("10.0.0.0")) || p.MarkAllocated(addr("10.0.0.0")) || p.MarkAllocated(addr("10.0.1.0")) {
		t.Error("Mark takes any address of the subnet, once")
	}
	if p.Allocated() != 1 || p.AllocatedDynamic() != 0 || !p.Release(addr("10.0.0.0")) {
		t.Error("a marked network address counts as allocated and can be released")
	}
}

func TestCapacitySaturates(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		cidr string
		want int64
	}{
		"Slash8":   {"10.0.0.0/8", 1<<24 - 2},
		"Slash66":  {"fd00::/66", 1<<62 - 2},
		"Slash65":  {"fd00::/65", math.MaxInt64},
		"Slash64":  {"fd00::/64", math.MaxInt64},
		"V6Slash8": {"fd00::/8", math.MaxInt64},
		"V6Slash0": {"::/0", math.MaxInt64},
		"V4Slash0": {"0.0.0.0/0", 1<<32 - 2},
	}
	for name, tc := range cases {
		if got := pool(t, tc.cidr, "", "").Capacity(); got != tc.want {
			t.Errorf("%s: Capacity() = %d, want %d", name, got, tc.want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason           string
		cidr, start, end string
	}{
		"StartOutside":  {"start is of another subnet", "10.0.0.0/24", "10.0.1.1", ""},
		"EndOutside":    {"end is of the other family", "10.0.0.0/24", "", "fd00::1"},
		"EndBefore":     {"end is before start", "10.0.0.0/24", "10.0.0.9", "10.0.0.8"},
		"MappedAddress": {"a subnet of mapped addresses has two texts", "::ffff:10.0.0.0/120", "", ""},
	}
	for name, tc := range cases {
		if _, err := New(config(tc.cidr, tc.start, tc.end)); err == nil {
			t.Errorf("%s: %s: want an error", name, tc.reason)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("zero config: want an error")
	}
}

// A subnet grows, or its dynamic range changes. The freed address is reused last, if possible.
func TestContinueAfter(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		wider  Config
		want   string
	}{
		"Grown":        {"The next address stays the next.", config("10.0.0.0/24", "", ""), "10.0.0.67"},
		"OtherRange":   {"The next address is not dynamic any more.", config("10.0.0.0/24", "10.0.0.9", "10.0.0.20"), "10.0.0.9"},
		"OtherSubnet":  {"The next address is not in the subnet.", config("10.0.1.0/24", "", ""), "10.0.1.1"},
		"OtherFamily":  {"The bits of the other family have no meaning.", config("fd00::/64", "", ""), "fd00::1"},
		"SmallerRange": {"It is the last of the range.", config("10.0.0.0/24", "10.0.0.9", "10.0.0.67"), "10.0.0.67"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			former, err := New(config("10.0.0.64/26", "", ""))
			if err != nil {
				t.Fatal(err)
			}
			former.AllocateN(nil, 2)
			p, err := New(tc.wider)
			if err != nil {
				t.Fatal(err)
			}
			p.ContinueAfter(former)
			if got, ok := p.AllocateNext(); !ok || got.String() != tc.want {
				t.Errorf("%s got %v, %t, want %s", tc.reason, got, ok, tc.want)
			}
		})
	}
}
