// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"math/big"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func sameAddr(a, b netip.Addr) bool { return a == b }

// genConfig draws subnets of both families from one address to all of IPv6; the
// small ones often, for they fill up.
func genConfig(t *rapid.T) Config {
	family := rapid.SampledFrom([]string{"10.32.0.0", "fd00:1234::"}).Draw(t, "family")
	base := addr(family)
	host := rapid.OneOf(rapid.IntRange(0, 6), rapid.IntRange(7, 16), rapid.IntRange(17, base.BitLen())).Draw(t, "hostBits")
	cfg := Config{CIDR: netip.PrefixFrom(base, base.BitLen()-host).Masked()}
	in := func(name string) netip.Addr { return genAddr(t, cfg.CIDR, name) }
	if rapid.Bool().Draw(t, "ranged") {
		cfg.Start, cfg.End = in("start"), in("end")
		if cfg.End.Less(cfg.Start) {
			cfg.Start, cfg.End = cfg.End, cfg.Start
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "reserved") {
		cfg.Reserved = append(cfg.Reserved, in("gateway"))
	}
	return cfg
}

// genAddr draws an address of the subnet, its ends and its neighbours included.
func genAddr(t *rapid.T, cidr netip.Prefix, name string) netip.Addr {
	first := fromAddr(cidr.Addr())
	mask := lowMask(cidr.Addr().BitLen() - cidr.Bits())
	off := u128{rapid.Uint64().Draw(t, name+"Hi"), rapid.Uint64().Draw(t, name+"Lo")}
	switch rapid.IntRange(0, 3).Draw(t, name+"Kind") {
	case 0:
		off = mask
	case 1:
		off = u128{lo: off.lo % 3000}
	}
	off = u128{off.hi & mask.hi, off.lo & mask.lo}
	return first.add(off).addr(cidr.Addr().Is4())
}

// A pool behaves as a set with a cursor, before and after each trip through its
// encoding.
func TestPoolIsASet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg := genConfig(t)
		p, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		used := map[netip.Addr]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"next": func(t *rapid.T) {
				got := p.AllocateN(nil, rapid.SampledFrom([]int{1, 5, 20, 20, 1100}).Draw(t, "n"))
				for _, a := range got {
					if used[a] || !cfg.CIDR.Contains(a) || slices.Contains(cfg.Reserved, a) ||
						cfg.Start.IsValid() && (a.Less(cfg.Start) || cfg.End.Less(a)) {
						t.Fatalf("Next() = %v of %+v", a, cfg)
					}
					used[a] = true
				}
			},
			"claim": func(t *rapid.T) {
				a := genAddr(t, cfg.CIDR, "addr")
				err := p.Allocate(a)
				if errors.Is(err, ErrAllocated) != used[a] {
					t.Fatalf("Claim(%v) = %v, used %v", a, err, used[a])
				}
				used[a] = used[a] || err == nil
			},
			"release": func(t *rapid.T) {
				a := genAddr(t, cfg.CIDR, "addr")
				if got := p.Release(a); got != used[a] {
					t.Fatalf("Release(%v) = %v, want %v", a, got, used[a])
				}
				used[a] = false
			},
			"recode": func(t *rapid.T) {
				before := p.Encode()
				if p, err = Decode(cfg, before); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(before, p.Encode()); diff != "" {
					t.Fatalf("read back and written again:\n%s", diff)
				}
			},
			"": func(t *rapid.T) { checkPool(t, cfg, p, used) },
		})
	})
}

// checkPool compares the pool with the set, and what it counts with a count.
func checkPool(t *rapid.T, cfg Config, p *Pool, used map[netip.Addr]bool) {
	var want []netip.Addr
	for a, in := range used {
		if in {
			want = append(want, a)
		}
	}
	slices.SortFunc(want, netip.Addr.Compare)
	if got := slices.Collect(p.All()); !slices.Equal(want, got) {
		t.Fatalf("addresses in use, -want +got:\n%s", cmp.Diff(want, got, cmp.Comparer(sameAddr)))
	}
	if p.Allocated() != int64(len(want)) {
		t.Fatalf("Allocated() = %d, want %d", p.Allocated(), len(want))
	}
	if p.AllocatedDynamic() > p.Capacity() {
		t.Fatalf("%d in use of %d", p.AllocatedDynamic(), p.Capacity())
	}
	if p.Capacity() < 100 {
		probe, err := Decode(cfg, p.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if got := int64(len(probe.AllocateN(nil, 200))); got != p.Capacity()-p.AllocatedDynamic() {
			t.Fatalf("%d can be had, want %d - %d", got, p.Capacity(), p.AllocatedDynamic())
		}
	}
}

func TestRangesAreASet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var r Ranges
		want := map[netip.Addr]bool{}
		cidr := netip.MustParsePrefix(rapid.SampledFrom([]string{"255.255.255.224/27", "::/123", "10.0.0.0/30"}).Draw(t, "cidr"))
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				a := genAddr(t, cidr, "addr")
				if r.Add(a) == want[a] {
					t.Fatalf("Add(%v) disagrees", a)
				}
				want[a] = true
			},
			"remove": func(t *rapid.T) {
				a := genAddr(t, cidr, "addr")
				if r.Remove(a) != want[a] {
					t.Fatalf("Remove(%v) disagrees", a)
				}
				delete(want, a)
			},
			"": func(t *rapid.T) {
				back, err := ParseRanges(r.String())
				if err != nil || back.String() != r.String() {
					t.Fatalf("%q read back: %q, %v", r.String(), back.String(), err)
				}
				got := slices.Collect(back.All())
				if len(got) != len(want) || back.Len() != int64(len(want)) || !slices.IsSortedFunc(got, netip.Addr.Compare) {
					t.Fatalf("got %v, want %v", got, want)
				}
				for _, a := range got {
					if !want[a] {
						t.Fatalf("%v was not added", a)
					}
				}
			},
		})
	})
}

func TestDecimal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := u128{rapid.Uint64().Draw(t, "hi"), rapid.Uint64().Draw(t, "lo")}
		want := new(big.Int).Lsh(new(big.Int).SetUint64(n.hi), 64)
		want.Or(want, new(big.Int).SetUint64(n.lo))
		if n.String() != want.String() {
			t.Fatalf("String() = %s, want %s", n, want)
		}
		if back, err := parseDecimal(n.String()); err != nil || back != n {
			t.Fatalf("parseDecimal(%s) = %v, %v", n, back, err)
		}
		bigger := want.Add(want, new(big.Int).Lsh(big.NewInt(1), 128)).String()
		if back, err := parseDecimal(bigger); err == nil {
			t.Fatalf("parseDecimal(%s) = %v, want an error", bigger, back)
		}
	})
}
