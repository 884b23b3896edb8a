// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/base64"
	"encoding/binary"
	"maps"
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
		p.AllocateN(nil, 3)
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

// A page's text is the only text of its bits, and they are where the API says.
func FuzzPageText(f *testing.F) {
	for _, text := range []string{
		oneBit, strings.Repeat("/", 170) + "8=", strings.Repeat("/", 171) + "=", strings.Repeat("A", 171) + "\n", "",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var p page
		if p.decode(text) != nil {
			return
		}
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(raw) != pageBytes {
			t.Fatalf("accepted %q: %d bytes, %v", text, len(raw), err)
		}
		set := 0
		for bit := range uint(pageBits) {
			want := raw[bit/8]>>(bit%8)&1 != 0
			if p.has(bit) != want {
				t.Errorf("bit %d is %v, want %v", bit, p.has(bit), want)
			}
			if want {
				set++
			}
		}
		if p.inUse != set || p.unavailable != set {
			t.Errorf("%d in use, %d busy, want %d", p.inUse, p.unavailable, set)
		}
		if p.text = ""; p.encode() != text { // written anew, not remembered
			t.Errorf("read %q, wrote %q", text, p.encode())
		}
	})
}

// A page's number has one text, and no number of 128 bits is beyond it.
func FuzzPageNumber(f *testing.F) {
	for _, text := range []string{
		"0", "63", "00", "-1", "+1", "1e3", "18446744073709551616",
		"340282366920938463463374607431768211455", "340282366920938463463374607431768211456",
	} {
		f.Add(text, uint64(0), uint64(0))
	}
	f.Add("", ^uint64(0), ^uint64(0))
	f.Fuzz(func(t *testing.T, text string, hi, lo uint64) {
		if n, err := parseDecimal(text); err == nil && n.String() != text {
			t.Errorf("read %q, wrote %q", text, n)
		}
		n := u128{hi, lo}
		if back, err := parseDecimal(n.String()); err != nil || back != n {
			t.Errorf("wrote %v, read %v, %v", n, back, err)
		}
	})
}

// Of a state that is accepted, whatever range and reserved addresses the network has by
// now, no address is handed out twice, nor one that is reserved or out of range; and
// reading it changes nothing of it.
func FuzzDecodePool(f *testing.F) {
	seed := func(words ...uint64) []byte {
		var raw []byte
		for _, w := range words {
			raw = binary.LittleEndian.AppendUint64(raw, w)
		}
		return raw
	}
	f.Add("10.0.0.0/21", "10.0.0.5", "10.0.7.250", "10.0.0.6", "10.0.3.0", seed(1, 2, 3), seed(), seed(^uint64(0)))
	f.Add("10.0.0.0/28", "", "", "10.0.0.9", "", seed(0xff), seed(), seed())
	f.Add("fd00::/64", "fd00::400", "fd00::bff", "fd00::401", "fd00::aaa", seed(), seed(7), seed(^uint64(0)>>1))
	f.Fuzz(func(t *testing.T, cidr, start, end, reserved, cursor string, p0, p1, p2 []byte) {
		cfg, ok := fuzzConfig(cidr, start, end, reserved)
		if !ok {
			return
		}
		in := State{CIDR: cidr, Cursor: cursor, Pages: map[string]string{}}
		for key, bits := range map[string][]byte{"0": p0, "1": p1, "2": p2} {
			var raw [pageBytes]byte
			if copy(raw[:], bits) > 0 {
				in.Pages[key] = base64.StdEncoding.EncodeToString(raw[:])
			}
		}
		before := maps.Clone(in.Pages)
		p, err := Decode(cfg, in)
		if diff := cmp.Diff(before, in.Pages); diff != "" {
			t.Errorf("the state that was read changed:\n%s", diff)
		}
		if err != nil {
			return
		}
		used := map[netip.Addr]bool{}
		for a := range p.All() {
			used[a] = true
		}
		for _, a := range p.AllocateN(nil, 3000) {
			switch {
			case used[a], a == cfg.Reserved[0], !cfg.CIDR.Contains(a):
				t.Errorf("%v is handed out: used %v, reserved %v", a, used[a], a == cfg.Reserved[0])
			case cfg.Start.IsValid() && a.Less(cfg.Start), cfg.End.IsValid() && cfg.End.Less(a):
				t.Errorf("%v is handed out, of %v to %v", a, cfg.Start, cfg.End)
			}
			used[a] = true
		}
		if p.Allocated() != int64(len(used)) {
			t.Errorf("Allocated() = %d, want %d", p.Allocated(), len(used))
		}
	})
}

// fuzzConfig reads a pool's settings; empty means none.
func fuzzConfig(cidr, start, end, reserved string) (cfg Config, ok bool) {
	var err error
	if cfg.CIDR, err = netip.ParsePrefix(cidr); err != nil {
		return cfg, false
	}
	cfg.Reserved = make([]netip.Addr, 1)
	into := []*netip.Addr{&cfg.Start, &cfg.End, &cfg.Reserved[0]}
	for i, text := range []string{start, end, reserved} {
		if text == "" {
			continue
		}
		if *into[i], err = netip.ParseAddr(text); err != nil {
			return cfg, false
		}
	}
	return cfg, true
}
