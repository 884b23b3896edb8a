// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// oneBit is a page with bit 0 set, as an outsider would write it: byte 0 is 1.
var oneBit = "AQ" + strings.Repeat("A", 169) + "="

func TestEncodeIsTheDocumentedFormat(t *testing.T) {
	t.Parallel()
	p := pool(t, "10.0.0.0/16", "", "")
	for _, a := range []string{"10.0.4.0", "10.0.8.1", "10.0.8.63"} {
		if err := p.Allocate(addr(a)); err != nil {
			t.Fatal(err)
		}
	}
	want := State{CIDR: "10.0.0.0/16", Cursor: "10.0.0.0", Pages: map[string]string{
		"1": oneBit,
		"2": "AgAAAAAAAIAA" + strings.Repeat("A", 159) + "=",
	}}
	if diff := cmp.Diff(want, p.Encode()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	page := func(key, text string) State {
		return State{CIDR: "10.0.0.0/24", Pages: map[string]string{key: text}}
	}
	zero := strings.Repeat("A", 171) + "="
	cases := map[string]struct {
		reason string
		state  State
		want   string
	}{
		"OtherSubnet":   {"bits mean other addresses", State{CIDR: "10.0.1.0/24"}, "another subnet"},
		"NotMasked":     {"one subnet has one text", State{CIDR: "10.0.0.1/24"}, "another subnet"},
		"NoSubnet":      {"which subnet?", State{}, "another subnet"},
		"CursorText":    {"not an address", State{CIDR: "10.0.0.0/24", Cursor: "x"}, "cursor"},
		"CursorOutside": {"not in the subnet", State{CIDR: "10.0.0.0/24", Cursor: "10.0.1.0"}, "outside"},
		"KeyEmpty":      {"no number", page("", zero), "decimal"},
		"KeyZeros":      {"a page has one key", page("00", zero), "leading zeros"},
		"KeySign":       {"no sign", page("+0", zero), "must be a digit"},
		"KeyHuge":       {"over 128 bits", page(strings.Repeat("9", 39), zero), "128 bits"},
		"KeyLong":       {"and no work for long ones", page(strings.Repeat("9", 1<<20), zero), "decimal"},
		"PageOutside":   {"a /24 has page 0 only", page("1", zero), "outside"},
		"BitOutside":    {"bit 256 of a /24", page("0", strings.Repeat("A", 42)+"AB"+strings.Repeat("A", 127)+"="), "bits outside"},
		"Short":         {"a page is 128 bytes", page("0", "AAAA"), "172"},
		"NoBase64":      {"not base64", page("0", strings.Repeat("!", 172)), "illegal base64"},
		"URLAlphabet":   {"standard base64, not URL's", page("0", "_"+zero[1:]), "illegal base64"},
		"Padding":       {"129 bytes", page("0", strings.Repeat("A", 172)), "129 bytes"},
		"TrailingBits":  {"bits behind the last byte", page("0", strings.Repeat("A", 170)+"B="), "illegal base64"},
		"NewLines":      {"the decoder would skip them", page("0", strings.Repeat("A", 168)+"\n\n\n\n"), "want 128"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Decode(config("10.0.0.0/24", "", ""), tc.state)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.want)
			}
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("%s: error of %d bytes", tc.reason, len(err.Error()))
			}
		})
	}
	if _, err := Decode(config("10.0.0.0/24", "", ""), State{CIDR: "10.0.1.0/24"}); !errors.Is(err, errSubnetMismatch) {
		t.Errorf("other subnet: %v, want ErrSubnet", err)
	}
}

func TestDecodeKeepsReservedFree(t *testing.T) {
	t.Parallel()
	cfg := config("10.0.0.0/29", "", "", "10.0.0.2")
	p, err := Decode(cfg, State{CIDR: "10.0.0.0/29", Cursor: "10.0.0.5", Pages: map[string]string{"0": oneBit}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"10.0.0.5", "10.0.0.6", "10.0.0.1", "10.0.0.3", "10.0.0.4"}
	if diff := cmp.Diff(want, texts(p.AllocateN(nil, 9))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if p.Capacity() != 5 || p.AllocatedDynamic() != 5 || p.Allocated() != 6 {
		t.Errorf("capacity %d, in use %d, allocated %d; want 5, 5, 6", p.Capacity(), p.AllocatedDynamic(), p.Allocated())
	}
}

func TestCursorOutsideOfTheRangeStartsAnew(t *testing.T) {
	t.Parallel()
	p, err := Decode(config("10.0.0.0/24", "10.0.0.9", "10.0.0.20"), State{CIDR: "10.0.0.0/24", Cursor: "10.0.0.200"})
	if err != nil {
		t.Fatal(err)
	}
	if a, _ := p.AllocateNext(); a != addr("10.0.0.9") {
		t.Errorf("Next() = %v, want the first of the changed range", a)
	}
}

// The sizes that the design promises, of the object's JSON.
func TestSizes(t *testing.T) {
	t.Parallel()
	size := func(p *Pool) int {
		b, err := json.Marshal(p.Encode())
		if err != nil {
			t.Fatal(err)
		}
		return len(b)
	}
	full := pool(t, "10.0.0.0/16", "", "")
	full.AllocateN(nil, 1<<16)
	packed := pool(t, "10.0.0.0/16", "", "")
	packed.AllocateN(nil, 655)
	random := pool(t, "10.0.0.0/16", "", "")
	r := rand.New(rand.NewPCG(1, 2))
	for range 655 {
		random.MarkAllocated(random.addr(u128{lo: r.Uint64N(1 << 16)}))
	}
	wide := pool(t, "fd00::/8", "", "")
	wide.AllocateN(nil, 5)
	cases := map[string]struct {
		pool *Pool
		max  int
	}{
		"FullSlash16":      {full, 14 << 10},
		"OnePercentRandom": {random, 14 << 10},
		"OnePercentPacked": {packed, 1 << 10},
		"FiveOfASlash8":    {wide, 300},
	}
	for name, tc := range cases {
		got := size(tc.pool)
		t.Logf("%s: %d bytes", name, got)
		if got > tc.max {
			t.Errorf("%s: %d bytes, want at most %d", name, got, tc.max)
		}
	}
}
