// SPDX-License-Identifier: Apache-2.0

package networktest

import (
	"fmt"
	"strings"
)

// StaticPoolRules are about the ranges that static addresses lie in.
func StaticPoolRules() map[string]Case {
	const dual = `cidr: 10.0.0.0/8, net6: "fd00::/64", `
	in := func(ranges string) string { return "{Options: {" + dual + "static_pool: [" + ranges + "]}}" }
	return map[string]Case{
		"None":      {Reason: "An empty list allows none.", Spec: in("")},
		"NoSubnet":  {Reason: "None of nothing.", Spec: `{Options: {static_pool: []}}`},
		"One":       {Reason: "A range of one address needs no end.", Spec: in(`{start: 10.0.0.7}, {start: "fd00::7", end: ""}`)},
		"Ranges":    {Reason: "Both families in one list.", Spec: in(`{start: 10.0.0.7, end: 10.0.0.9}, {start: "fd00::7", end: "fd00::9"}`)},
		"ByNumber":  {Reason: "An order by text would refuse it.", Spec: in(`{start: 10.9.255.255, end: 10.10.0.0}`)},
		"ByNumber6": {Reason: "An order by text would refuse it.", Spec: in(`{start: "fd00::9", end: "fd00::10"}`)},
		"Words":     {Reason: "An end is an address.", Spec: in(`{start: any}`), Refused: []string{"spec.Options.static_pool[0].start", "IPv4 or IPv6"}},
		"EmptyStart": {
			Reason: "A range begins somewhere.", Spec: in(`{start: "", end: 10.0.0.9}`), Refused: []string{"spec.Options.static_pool[0].start"},
		},
		"BadEnd":   {Reason: "An end is an address.", Spec: in(`{start: 10.0.0.7, end: 10.0.0.256}`), Refused: []string{"spec.Options.static_pool[0].end", "same family"}},
		"Mixed":    {Reason: "Families do not mix.", Spec: in(`{start: 10.0.0.7, end: "fd00::9"}`), Refused: []string{"spec.Options.static_pool[0].end", "same family"}},
		"Mapped":   {Reason: "It is an IPv4 address in disguise.", Spec: in(`{start: "::ffff:10.0.0.7"}`), Refused: []string{"spec.Options.static_pool[0].start"}},
		"EndFirst": {Reason: "As numbers, 9 is before 10.", Spec: in(`{start: 10.0.0.10, end: 10.0.0.9}`), Refused: []string{"spec.Options.static_pool[0].end", "before start 10.0.0.10"}},
		"EndFirst6": {
			Reason: "The second range counts, too.", Spec: in(`{start: "fd00::1"}, {start: "fd00::10", end: "fd00::f"}`),
			Refused: []string{"spec.Options.static_pool[1].end", "before start fd00::10"},
		},
		"Outside":    {Reason: "Nobody could have it.", Spec: in(`{start: 11.0.0.1}`), Refused: []string{"spec.Options.static_pool", "outside cidr and net6"}},
		"EndOutside": {Reason: "The whole range is inside.", Spec: in(`{start: 10.0.0.1, end: 11.0.0.1}`), Refused: []string{"spec.Options.static_pool", "outside cidr and net6"}},
		"Outside6":   {Reason: "Nobody could have it.", Spec: in(`{start: "fd00:0:0:1::1"}`), Refused: []string{"spec.Options.static_pool", "outside cidr and net6"}},
		"OtherFamily": {
			Reason: "There is no subnet of it.", Spec: `{Options: {net6: "fd00::/64", static_pool: [{start: 10.0.0.1}]}}`,
			Refused: []string{"spec.Options.static_pool", "outside cidr and net6"},
		},
		"Many":    {Reason: "256 are allowed.", Spec: manyRanges(256)},
		"TooMany": {Reason: "257 are not.", Spec: manyRanges(257), Refused: []string{"spec.Options.static_pool", "256"}},
	}
}

func manyRanges(n int) string {
	var b strings.Builder
	b.WriteString("Options:\n  net6: fd00::/64\n  static_pool:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {start: \"fd00::%x:0\", end: \"fd00::%x:ffff\"}\n", i, i)
	}
	return b.String()
}
