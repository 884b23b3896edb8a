// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRangesText(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		addrs  []string
		want   string
	}{
		"Empty":   {"nothing is no text", nil, ""},
		"One":     {"a single address is no range", []string{"10.0.0.5"}, "10.0.0.5"},
		"Joined":  {"neighbours are one range, in any order", []string{"10.0.0.7", "10.0.0.5", "10.0.0.6"}, "10.0.0.5-10.0.0.7"},
		"Twice":   {"a set has each address once", []string{"10.0.0.5", "10.0.0.5"}, "10.0.0.5"},
		"Apart":   {"a gap parts ranges", []string{"10.0.0.12", "10.0.0.5", "10.0.0.6"}, "10.0.0.5-10.0.0.6,10.0.0.12"},
		"Ends":    {"no neighbour before the first or after the last", []string{"0.0.0.0", "255.255.255.255"}, "0.0.0.0,255.255.255.255"},
		"V6":      {"RFC 5952", []string{"fd00::1:0", "fd00::ffff"}, "fd00::ffff-fd00::1:0"},
		"V6Zeros": {"the address of all zeros", []string{"::", "::1"}, "::-::1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r Ranges
			for _, a := range tc.addrs {
				r.Add(addr(a))
			}
			if got := r.String(); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
			back, err := ParseRanges(tc.want)
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(slices.Collect(r.All()), slices.Collect(back.All()), cmp.Comparer(sameAddr)); diff != "" {
				t.Errorf("%s: read back:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestParseRangesRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, text, want string }{
		"NoAddress":    {"not an address", "x", "parse"},
		"EmptyPart":    {"nothing between commas", "10.0.0.1,,10.0.0.9", "parse"},
		"Space":        {"no white space", "10.0.0.1, 10.0.0.9", "parse"},
		"NotCanonical": {"one address has one text", "fd00:0::1", "canonical"},
		"Zone":         {"zones mean nothing in a subnet", "fe80::1%eth0", "canonical"},
		"Mapped":       {"IPv4 has its own form", "::ffff:10.0.0.1", "canonical"},
		"Backwards":    {"from before to", "10.0.0.9-10.0.0.5", "not before"},
		"SingleRange":  {"a range of one is an address", "10.0.0.5-10.0.0.5", "not before"},
		"Families":     {"a range is of one family", "10.0.0.5-fd00::1", "two families"},
		"Mixed":        {"a set is of one family", "10.0.0.5,fd00::1", "family"},
		"Order":        {"in order", "10.0.0.9,10.0.0.5", "not after"},
		"Overlap":      {"no address twice", "10.0.0.5-10.0.0.9,10.0.0.9-10.0.0.12", "not after"},
		"Adjacent":     {"neighbours are one range", "10.0.0.5-10.0.0.9,10.0.0.10", "not after"},
		"TooMany":      {"bounded work", strings.Repeat("10.0.0.1,", maxRanges) + "10.0.0.9", "at most"},
		"LongRange":    {"bounded messages", strings.Repeat("1", 1<<20), "parse"},
		"End":          {"the end of a long text stays", strings.Repeat("1", 200) + ".x", `1.x": `},
	}
	for name, tc := range cases {
		_, err := ParseRanges(tc.text)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s: got error %.200v, want one with %q", name, tc.reason, err, tc.want)
		}
	}
}

func TestRangesRemove(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, text, addr, want string }{
		"Only":   {"the last address", "10.0.0.5", "10.0.0.5", ""},
		"First":  {"from the front", "10.0.0.5-10.0.0.7", "10.0.0.5", "10.0.0.6-10.0.0.7"},
		"Last":   {"from the back", "10.0.0.5-10.0.0.7", "10.0.0.7", "10.0.0.5-10.0.0.6"},
		"Middle": {"splits the range", "10.0.0.5-10.0.0.7", "10.0.0.6", "10.0.0.5,10.0.0.7"},
		"Absent": {"not in the set", "10.0.0.5-10.0.0.7", "10.0.0.8", "10.0.0.5-10.0.0.7"},
		"Gap":    {"between ranges", "10.0.0.5,10.0.0.7", "10.0.0.6", "10.0.0.5,10.0.0.7"},
	}
	for name, tc := range cases {
		r, err := ParseRanges(tc.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Remove(addr(tc.addr)); got != (tc.text != tc.want) {
			t.Errorf("%s: %s: Remove() = %v", name, tc.reason, got)
		}
		if r.String() != tc.want {
			t.Errorf("%s: %s: got %q, want %q", name, tc.reason, r.String(), tc.want)
		}
	}
}

func TestRangesLen(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		text string
		want int64
	}{
		"Empty":     {"", 0},
		"Two":       {"10.0.0.5-10.0.0.9,10.0.0.12", 6},
		"Saturates": {"fd00::-fd00:0:0:1::", math.MaxInt64},
		"Sum":       {"fd00::-fd00::7fff:ffff:ffff:ffff,fd00:0:0:1::", math.MaxInt64},
	}
	for name, tc := range cases {
		r, err := ParseRanges(tc.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Len(); got != tc.want || r.Empty() != (tc.want == 0) {
			t.Errorf("%s: Len() = %d, want %d", name, got, tc.want)
		}
	}
}

func TestRangesEqual(t *testing.T) {
	t.Parallel()
	var added Ranges // in another order, and with an address that is taken out again
	for _, a := range []string{"10.0.0.12", "10.0.0.7", "10.0.0.5", "10.0.0.6", "10.0.0.9", "10.0.0.8", "10.0.0.11"} {
		added.Add(netip.MustParseAddr(a))
	}
	added.Remove(netip.MustParseAddr("10.0.0.11"))
	for text, want := range map[string]bool{
		"10.0.0.5-10.0.0.9,10.0.0.12": true,
		"10.0.0.5-10.0.0.9":           false,
		"10.0.0.5-10.0.0.12":          false,
		"":                            false,
	} {
		r, err := ParseRanges(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := added.Equal(&r); got != want {
			t.Errorf("%s equals %q: got %t, want %t", added.String(), text, got, want)
		}
	}
}
