// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
)

// slash16 is a /16 of which percent is in use: at random, or all but its end.
func slash16(b *testing.B, percent int, packed bool) *Pool {
	b.Helper()
	p := pool(b, "10.0.0.0/16", "", "")
	free := 1 << 16 * (100 - percent) / 100
	p.AllocateN(nil, 1<<16)
	r := rand.New(rand.NewPCG(1, 2))
	for p.AllocatedDynamic() > p.Capacity()-int64(free) {
		off := r.Uint64N(1<<16-2) + 1
		if packed {
			off = uint64(p.AllocatedDynamic())
		}
		p.Release(p.addr(u128{lo: off}))
	}
	return p
}

// linear is what Next is compared with: bit after bit from the cursor on.
func linear(p *Pool) (u128, bool) {
	for off := p.cursor; !p.end.less(off); off = off.inc() {
		pg := p.index.get(off.pageNumber())
		if pg == nil || !pg.has(bitOf(off)) && pg.reserved[bitOf(off)/64]>>(bitOf(off)%64)&1 == 0 {
			return off, true
		}
	}
	return u128{}, false
}

// BenchmarkFindFree: find a free address in a /16 that is 99 % full, from
// cursors all over it; "packed" has all that is free at its end.
func BenchmarkFindFree(b *testing.B) {
	for _, layout := range []string{"random", "packed"} {
		p := slash16(b, 99, layout == "packed")
		for name, find := range map[string]func() bool{
			"pages":  func() bool { _, ok := p.search(p.cursor, p.end); return ok },
			"linear": func() bool { _, ok := linear(p); return ok },
		} {
			b.Run(layout+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					p.cursor = u128{lo: uint64(i) * 7919 % 64000}
					if !find() {
						b.Fatal("nothing found")
					}
				}
			})
		}
	}
}

// BenchmarkNextRelease takes and frees: what one claim costs in a plan.
func BenchmarkNextRelease(b *testing.B) {
	p := slash16(b, 99, false)
	b.ReportAllocs()
	for b.Loop() {
		a, ok := p.AllocateNext()
		if !ok || !p.Release(a) {
			b.Fatal("exhausted")
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	cfg := config("10.0.0.0/16", "", "")
	for name, percent := range map[string]int{"full": 100, "half": 50} {
		s := slash16(b, percent, false).Encode()
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(cfg, s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEncode changes one address of a half full /16 first, as a claim does.
func BenchmarkEncode(b *testing.B) {
	p := slash16(b, 50, false)
	b.ReportAllocs()
	bytes := 0
	for b.Loop() {
		a, _ := p.AllocateNext()
		s := p.Encode()
		p.Release(a)
		bytes = len(s.Pages)
	}
	out, err := json.Marshal(p.Encode())
	if err != nil || bytes == 0 {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(out)), "JSON-bytes")
}

func BenchmarkParseRanges(b *testing.B) {
	const s = "10.0.0.5-10.0.0.9,10.0.0.12,10.0.1.0-10.0.1.255"
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseRanges(s); err != nil {
			b.Fatal(err)
		}
	}
}
