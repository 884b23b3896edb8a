// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Whatever a taken-over node wrote, decoding ends, and what it accepts is what
// Encode writes.
func FuzzDecode(f *testing.F) {
	f.Add("10.0.0.0/16", "10.0.0.9", "3", oneBit)
	f.Add("10.0.0.0/30", "", "0", oneBit)
	f.Add("fd00::/8", "fd00::1", "1329227995784915872903807060280344575", strings.Repeat("/", 171)+"=")
	f.Add("::/0", "", "-1", "")
	f.Fuzz(func(t *testing.T, cidr, cursor, key, page string) {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return
		}
		in := State{CIDR: cidr, Cursor: cursor, Pages: map[string]string{key: page}}
		p, err := Decode(Config{CIDR: prefix}, in)
		if err != nil {
			return
		}
		want := int64(0)
		for range p.All() {
			want++
		}
		if p.Allocated() != want {
			t.Errorf("Allocated() = %d, want %d", p.Allocated(), want)
		}
		p.NextN(nil, 3)
		out := p.Encode()
		back, err := Decode(Config{CIDR: prefix}, out)
		if err != nil {
			t.Fatalf("own encoding: %v", err)
		}
		if diff := cmp.Diff(out, back.Encode()); diff != "" {
			t.Errorf("written, read, written:\n%s", diff)
		}
	})
}

// A text that is accepted is the only text of its set.
func FuzzParseRanges(f *testing.F) {
	for _, s := range []string{
		"", "10.0.0.5-10.0.0.9,10.0.0.12", "fd00::5-fd00::9", "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		"255.255.255.255", "10.0.0.5-", "-", ",", "fe80::1%1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRanges(s)
		if err != nil {
			return
		}
		if got := r.String(); got != s {
			t.Errorf("read %q, wrote %q", s, got)
		}
		if r.Empty() != (s == "") || r.Len() < 0 {
			t.Errorf("%q: empty %v, %d addresses", s, r.Empty(), r.Len())
		}
	})
}
