// SPDX-License-Identifier: Apache-2.0

package networktest

import (
	"fmt"
	"strings"
)

// SubnetRules are about subnets and the pools within them, IPv4.
func SubnetRules() map[string]RuleCase {
	return map[string]RuleCase{
		"CIDR":     {Reason: "An IPv4 subnet.", Spec: `{Options: {cidr: 10.0.0.0/24}}`},
		"HostBits": {Reason: "DANM takes the subnet of an address.", Spec: `{Options: {cidr: 10.0.0.7/24}}`},
		"NoPrefix": {Reason: "A subnet has a length.", Spec: `{Options: {cidr: 10.0.0.0}}`, Refused: []string{"spec.Options.cidr", "prefix length"}},
		"SixInFour": {
			Reason: "IPv6 has a field of its own.", Spec: `{Options: {cidr: "fd00::/64"}}`,
			Refused: []string{"spec.Options.cidr", "IPv4 subnet"},
		},
		"BadPrefix": {Reason: "32 bits at most.", Spec: `{Options: {cidr: 10.0.0.0/33}}`, Refused: []string{"spec.Options.cidr"}},
		"Words":     {Reason: "Not a subnet.", Spec: `{Options: {cidr: any}}`, Refused: []string{"spec.Options.cidr"}},
		"Pool":      {Reason: "A part of the subnet.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.20}}}`},
		"PoolOfOne": {Reason: "One address is a pool.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.10}}}`},
		"HalfPool":  {Reason: "The other end is the subnet's.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10}}}`},
		"PoolAlone": {
			Reason: "A pool is a part of a subnet.", Spec: `{Options: {allocation_pool: {start: 10.0.0.10}}}`,
			Refused: []string{"spec.Options.allocation_pool", "set cidr"},
		},
		"StartOutside": {
			Reason: "The message names both.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.1.10}}}`,
			Refused: []string{"spec.Options.allocation_pool.start", "10.0.1.10", "10.0.0.0/24"},
		},
		"EndOutside": {
			Reason: "The message names both.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {end: 10.0.1.10}}}`,
			Refused: []string{"spec.Options.allocation_pool.end", "10.0.1.10", "10.0.0.0/24"},
		},
		"EndFirst": {
			Reason: "As numbers, 9 is before 10.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.9}}}`,
			Refused: []string{"spec.Options.allocation_pool.end", "10.0.0.9", "before start 10.0.0.10"},
		},
		"HighOctetsOrder": {
			Reason: "An order by text would refuse it.",
			Spec:   `{Options: {cidr: 10.0.0.0/8, allocation_pool: {start: 10.9.255.255, end: 10.10.0.0}}}`,
		},
		"MiddleOctetDown": {
			Reason: "A later octet does not make up for an earlier one.",
			Spec:   `{Options: {cidr: 10.0.0.0/8, allocation_pool: {start: 10.2.0.0, end: 10.1.255.255}}}`, Refused: []string{"allocation_pool.end"},
		},
		"PoolNoAddress": {
			Reason: "An end is an address.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.0/25}}}`,
			Refused: []string{"spec.Options.allocation_pool.start", `"10.0.0.0/25"`},
		},
		"PoolOfSix": {
			Reason: "Families do not mix.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {end: "fd00::1"}}}`,
			Refused: []string{"spec.Options.allocation_pool.end", "IPv4"},
		},
		"BadLastIP": {
			Reason: "DANM's cursor is an address.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {lastIp: x}}}`,
			Refused: []string{"spec.Options.allocation_pool.lastIp"},
		},
		"LeadingZero": {
			Reason: "010 is 10 or 8: RFC 6943 3.1.1.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.010}}}`,
			Refused: []string{"spec.Options.allocation_pool.start"},
		},
	}
}

// Subnet6Rules are about subnets and the pools within them, IPv6.
func Subnet6Rules() map[string]RuleCase {
	return map[string]RuleCase{
		"Net6":     {Reason: "An IPv6 subnet.", Spec: `{Options: {net6: "fd00::/64"}}`},
		"Longest":  {Reason: "Every notation of RFC 4291 fits.", Spec: `{Options: {net6: "fd00:1111:2222:3333:4444:5555:6666:7777/128"}}`},
		"Dual":     {Reason: "Dual stack.", Spec: `{Options: {cidr: 10.0.0.0/24, net6: "fd00::/64"}}`},
		"FourIn6":  {Reason: "IPv4 has a field of its own.", Spec: `{Options: {net6: 10.0.0.0/24}}`, Refused: []string{"spec.Options.net6", "IPv6 subnet"}},
		"Mapped":   {Reason: "A mapped IPv4 subnet is not IPv6.", Spec: `{Options: {net6: "::ffff:10.0.0.0/120"}}`, Refused: []string{"spec.Options.net6"}},
		"NoPrefix": {Reason: "A subnet has a length.", Spec: `{Options: {net6: "fd00::"}}`, Refused: []string{"spec.Options.net6"}},
		"PoolCIDR": {Reason: "A part of net6.", Spec: `{Options: {net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::1:0/112"}}}`},
		"PoolAlone": {
			Reason: "A pool is a part of a subnet.", Spec: `{Options: {allocation_pool_v6: {cidr: "fd00::1:0/112"}}}`,
			Refused: []string{"spec.Options.allocation_pool_v6", "set net6"},
		},
		"PoolOutside": {
			Reason: "The message names both.", Spec: `{Options: {net6: "fd00::/64", allocation_pool_v6: {cidr: "fd01::/112"}}}`,
			Refused: []string{"spec.Options.allocation_pool_v6.cidr", "fd01::/112", "fd00::/64"},
		},
		"PoolWider": {
			Reason: "A pool is no larger than its subnet.", Spec: `{Options: {net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::/48"}}}`,
			Refused: []string{"spec.Options.allocation_pool_v6.cidr"},
		},
		"StartOutside": {
			Reason: "The message names both.", Spec: `{Options: {net6: "fd00::/64", allocation_pool_v6: {start: "fd00:0:0:1::"}}}`,
			Refused: []string{"spec.Options.allocation_pool_v6.start", "fd00:0:0:1::", "fd00::/64"},
		},
		"StartOutsidePool": {
			Reason: "Within the pool's own subnet, too.",
			Spec:   `{Options: {net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::1:0/112", start: "fd00::2:1"}}}`, Refused: []string{"allocation_pool_v6.start"},
		},
		"EndOutsidePool": {
			Reason: "Within the pool's own subnet, too.",
			Spec:   `{Options: {net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::1:0/112", end: "fd00::2:1"}}}`, Refused: []string{"allocation_pool_v6.end"},
		},
		"Order": {
			Reason: "Hexadecimal, of different lengths.",
			Spec:   `{Options: {net6: "fd00::/64", allocation_pool_v6: {start: "fd00::f", end: "fd00::10"}}}`,
		},
		"OrderManyZeros": {
			Reason: "Zeros may be left out at the front, in the middle, at the end or nowhere.",
			Spec:   `{Options: {net6: "::1:0:0:0/80", allocation_pool_v6: {start: "::1:0:0:1", end: "0:0:0:0:1:0:1:0"}}}`,
		},
		"OrderTrailing": {
			Reason: "A trailing gap is zeros.",
			Spec:   `{Options: {net6: "fd00::/16", allocation_pool_v6: {start: "fd00::", end: "fd00:0:0:0:1::"}}}`,
		},
		"OrderUpperCase": {
			Reason: "Letters compare as digits in either case.",
			Spec:   `{Options: {net6: "fd00::/64", allocation_pool_v6: {start: "fd00::B", end: "FD00::c"}}}`,
		},
		"EndFirst": {
			Reason:  "As numbers, f is before 10.",
			Spec:    `{Options: {net6: "fd00::/64", allocation_pool_v6: {start: "fd00::10", end: "fd00::f"}}}`,
			Refused: []string{"spec.Options.allocation_pool_v6.end", "fd00::f", "before start fd00::10"},
		},
		"EndFirstHighGroup": {
			Reason:  "A later group does not make up for an earlier one.",
			Spec:    `{Options: {net6: "fd00::/16", allocation_pool_v6: {start: "fd00:2::", end: "fd00:1:ffff::"}}}`,
			Refused: []string{"spec.Options.allocation_pool_v6.end"},
		},
		"PoolOfFour": {
			Reason: "Families do not mix.", Spec: `{Options: {net6: "fd00::/64", allocation_pool_v6: {start: 10.0.0.1}}}`,
			Refused: []string{"spec.Options.allocation_pool_v6.start", "IPv6"},
		},
		"Zone": {
			Reason: "A zone means nothing on another node.", Spec: `{Options: {net6: "fd00::/64", allocation_pool_v6: {start: "fd00::1%eth0"}}}`,
			Refused: []string{"spec.Options.allocation_pool_v6.start"},
		},
	}
}

// SpecialSubnetRules are about subnets of addresses that no host has.
func SpecialSubnetRules() map[string]RuleCase {
	return map[string]RuleCase{
		"Default":          specialSubnet("cidr", "0.0.0.0/0", "It takes in all addresses."),
		"Half":             specialSubnet("cidr", "0.0.0.0/1", "It takes in the loopback's."),
		"UpperHalf":        specialSubnet("cidr", "128.0.0.0/1", "It takes in multicast's."),
		"Unspecified":      specialSubnet("cidr", "0.0.0.0/24", "No host has an address of this network (RFC 1122)."),
		"Loopback":         specialSubnet("cidr", "127.0.0.0/8", "It never leaves a host."),
		"LoopbackHostBits": specialSubnet("cidr", "127.9.8.7/24", "A part of it, with host bits."),
		"LoopbackWithin":   specialSubnet("cidr", "126.0.0.0/7", "It takes in the loopback's."),
		"LinkLocal":        specialSubnet("cidr", "169.254.169.0/24", "Clouds serve credentials there."),
		"Multicast":        specialSubnet("cidr", "239.1.0.0/16", "A host has no such address."),
		"Broadcast":        specialSubnet("cidr", "255.255.255.0/24", "It takes in the limited broadcast's."),
		"BroadcastItself":  specialSubnet("cidr", "255.255.255.255/32", "It is everybody's."),
		"Default6":         specialSubnet("net6", "::/0", "It takes in all addresses."),
		"Unspecified6":     specialSubnet("net6", "::/128", "No host has it."),
		"Loopback6":        specialSubnet("net6", "::1/128", "It never leaves a host."),
		"Compatible":       specialSubnet("net6", "::10.0.0.0/120", "IPv4-compatible ones are deprecated (RFC 4291)."),
		"AroundMapped":     specialSubnet("net6", "::ff00:0:0/88", "It takes in the IPv4-mapped ones."),
		"LinkLocal6":       specialSubnet("net6", "fe80::/64", "Each link has it."),
		"LinkLocalWithin":  specialSubnet("net6", "fe00::/8", "It takes in the link-local ones."),
		"Multicast6":       specialSubnet("net6", "ff02::/64", "A host has no such address."),
		"BesideLoopback":   {Reason: "126 is a host's.", Spec: `{Options: {cidr: 126.0.0.0/8}}`},
		"BesideMulticast":  {Reason: "223 is a host's.", Spec: `{Options: {cidr: 223.255.255.0/24}}`},
		"Reserved":         {Reason: "Linux takes 240/4, and networks use it.", Spec: `{Options: {cidr: 240.0.0.0/8}}`},
		"Shared":           {Reason: "Carriers' addresses (RFC 6598).", Spec: `{Options: {cidr: 100.64.0.0/10}}`},
		"Translated":       {Reason: "NAT64's prefix is global.", Spec: `{Options: {net6: "64:ff9b::/96"}}`},
		"BesideLinkLocal":  {Reason: "A unique local one.", Spec: `{Options: {net6: "fd80::/64"}}`},
	}
}

// specialSubnet is the rule of each subnet that has addresses for special purposes.
func specialSubnet(field, subnet, reason string) RuleCase {
	return RuleCase{
		Reason: reason, Spec: fmt.Sprintf(`{Options: {%s: "%s"}}`, field, subnet),
		Refused: []string{"spec.Options." + field, "must be outside", "special purposes"},
	}
}

// RouteRules are about destinations and gateways.
func RouteRules() map[string]RuleCase {
	return map[string]RuleCase{
		"Route":   {Reason: "Destination to gateway.", Spec: `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: 10.0.0.1}}}`},
		"Default": {Reason: "A default route.", Spec: `{Options: {cidr: 10.0.0.0/24, routes: {0.0.0.0/0: 10.0.0.1}}}`},
		"Route6":  {Reason: "The same for IPv6.", Spec: `{Options: {net6: "fd00::/64", routes6: {"::/0": "fd00::1"}}}`},
		"Alone": {
			Reason: "A gateway is an address of the subnet.", Spec: `{Options: {routes: {10.1.0.0/16: 10.0.0.1}}}`,
			Refused: []string{"spec.Options.routes", "set cidr"},
		},
		"Alone6": {
			Reason: "A gateway is an address of the subnet.", Spec: `{Options: {cidr: 10.0.0.0/24, routes6: {"::/0": "fd00::1"}}}`,
			Refused: []string{"spec.Options.routes6", "set net6"},
		},
		"GatewayOutside": {
			Reason: "The kernel could not reach it.", Spec: `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: 10.0.1.1}}}`,
			Refused: []string{"spec.Options.routes", "outside cidr 10.0.0.0/24"},
		},
		"GatewayOutside6": {
			Reason: "The kernel could not reach it.", Spec: `{Options: {net6: "fd00::/64", routes6: {"::/0": "fe80::1"}}}`,
			Refused: []string{"spec.Options.routes6", "outside net6 fd00::/64"},
		},
		"BadGateway": {
			Reason: "A gateway is an address.", Spec: `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: router}}}`,
			Refused: []string{"spec.Options.routes", "gateway", "IPv4 address"},
		},
		"EmptyGateway": {
			Reason: "A gateway is an address.", Spec: `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: ""}}}`,
			Refused: []string{"spec.Options.routes"},
		},
		"BadDestination": {
			Reason: "A destination is a subnet.", Spec: `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0: 10.0.0.1}}}`,
			Refused: []string{"spec.Options.routes", "prefix length"},
		},
		"SixInRoutes": {
			Reason: "Families do not mix.", Spec: `{Options: {cidr: 10.0.0.0/24, routes: {"::/0": 10.0.0.1}}}`,
			Refused: []string{"spec.Options.routes", "IPv4 subnet"},
		},
		"FourInRoutes6": {
			Reason: "Families do not mix.", Spec: `{Options: {net6: "fd00::/64", routes6: {10.0.0.0/8: "fd00::1"}}}`,
			Refused: []string{"spec.Options.routes6", "IPv6 subnet"},
		},
		"SameTwice": {
			Reason:  "The kernel would refuse the second.",
			Spec:    `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: 10.0.0.1, 10.1.2.3/16: 10.0.0.2}}}`,
			Refused: []string{"spec.Options.routes", "same subnet"},
		},
		"Many":    {Reason: "64 are allowed.", Spec: manyRoutes(64)},
		"TooMany": {Reason: "65 are not.", Spec: manyRoutes(65), Refused: []string{"spec.Options.routes", "64"}},
	}
}

func manyRoutes(n int) string {
	var b strings.Builder
	b.WriteString("Options:\n  cidr: 10.0.0.0/24\n  routes:\n")
	for i := range n {
		fmt.Fprintf(&b, "    10.1.%d.0/24: 10.0.0.1\n", i)
	}
	return b.String()
}

// StaticPoolRules are about the ranges that static addresses lie in.
func StaticPoolRules() map[string]RuleCase {
	const dual = `cidr: 10.0.0.0/8, net6: "fd00::/64", `
	in := func(ranges string) string { return "{Options: {" + dual + "static_pool: [" + ranges + "]}}" }
	return map[string]RuleCase{
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
