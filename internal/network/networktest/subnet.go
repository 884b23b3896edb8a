// SPDX-License-Identifier: Apache-2.0

package networktest

import (
	"fmt"
	"strings"
)

// SubnetRules are the cases of IPv4 subnets and their pools.
func SubnetRules() map[string]RuleCase {
	return map[string]RuleCase{
		"CIDR":     {Reason: "A network may have an IPv4 subnet.", Spec: `{Options: {cidr: 10.0.0.0/24}}`},
		"HostBits": {Reason: "DANM accepts host bits in a subnet.", Spec: `{Options: {cidr: 10.0.0.7/24}}`},
		"NoPrefix": {Reason: "A subnet needs a prefix length.", Spec: `{Options: {cidr: 10.0.0.0}}`, Refused: []string{"spec.Options.cidr", "prefix length"}},
		"SixInFour": {
			Reason: "IPv6 subnets belong into net6.", Spec: `{Options: {cidr: "fd00::/64"}}`,
			Refused: []string{"spec.Options.cidr", "IPv4 subnet"},
		},
		"BadPrefix": {Reason: "A prefix has at most 32 bits.", Spec: `{Options: {cidr: 10.0.0.0/33}}`, Refused: []string{"spec.Options.cidr"}},
		"Words":     {Reason: "A word is not a subnet.", Spec: `{Options: {cidr: any}}`, Refused: []string{"spec.Options.cidr"}},
		"Pool":      {Reason: "A pool may be a part of the subnet.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.20}}}`},
		"PoolOfOne": {Reason: "A pool may have one address.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.10}}}`},
		"HalfPool":  {Reason: "The other end is the default of the subnet.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10}}}`},
		"PoolAlone": {
			Reason: "A pool is a part of a subnet.", Spec: `{Options: {allocation_pool: {start: 10.0.0.10}}}`,
			Refused: []string{"spec.Options.allocation_pool", "set cidr"},
		},
		"StartOutside": {
			Reason: "The message must name the value and the subnet.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.1.10}}}`,
			Refused: []string{"spec.Options.allocation_pool.start", "10.0.1.10", "10.0.0.0/24"},
		},
		"EndOutside": {
			Reason: "The message must name the value and the subnet.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {end: 10.0.1.10}}}`,
			Refused: []string{"spec.Options.allocation_pool.end", "10.0.1.10", "10.0.0.0/24"},
		},
		"EndFirst": {
			Reason: "Addresses are ordered as numbers: 9 is before 10.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.9}}}`,
			Refused: []string{"spec.Options.allocation_pool.end", "10.0.0.9", "before start 10.0.0.10"},
		},
		"HighOctetsOrder": {
			Reason: "Addresses are not ordered as texts.",
			Spec:   `{Options: {cidr: 10.0.0.0/8, allocation_pool: {start: 10.9.255.255, end: 10.10.0.0}}}`,
		},
		"MiddleOctetDown": {
			Reason: "A later octet does not make up for an earlier one.",
			Spec:   `{Options: {cidr: 10.0.0.0/8, allocation_pool: {start: 10.2.0.0, end: 10.1.255.255}}}`, Refused: []string{"allocation_pool.end"},
		},
		"PoolNoAddress": {
			Reason: "The ends of a pool must be addresses.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.0/25}}}`,
			Refused: []string{"spec.Options.allocation_pool.start", `"10.0.0.0/25"`},
		},
		"PoolOfSix": {
			Reason: "Addresses of both families must not be mixed.", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {end: "fd00::1"}}}`,
			Refused: []string{"spec.Options.allocation_pool.end", "IPv4"},
		},
		"LeadingZero": {
			Reason: "010 is ambiguous: 10 or 8 (RFC 6943, 3.1.1).", Spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.010}}}`,
			Refused: []string{"spec.Options.allocation_pool.start"},
		},
	}
}

// Subnet6Rules are the cases of IPv6 subnets and their pools.
func Subnet6Rules() map[string]RuleCase {
	return map[string]RuleCase{
		"Net6":     {Reason: "A network may have an IPv6 subnet.", Spec: `{Options: {net6: "fd00::/64"}}`},
		"Longest":  {Reason: "Every notation of RFC 4291 is accepted.", Spec: `{Options: {net6: "fd00:1111:2222:3333:4444:5555:6666:7777/128"}}`},
		"Dual":     {Reason: "A network may have both families.", Spec: `{Options: {cidr: 10.0.0.0/24, net6: "fd00::/64"}}`},
		"FourIn6":  {Reason: "IPv4 subnets belong into cidr.", Spec: `{Options: {net6: 10.0.0.0/24}}`, Refused: []string{"spec.Options.net6", "IPv6 subnet"}},
		"Mapped":   {Reason: "An IPv4-mapped subnet is not an IPv6 subnet.", Spec: `{Options: {net6: "::ffff:10.0.0.0/120"}}`, Refused: []string{"spec.Options.net6"}},
		"NoPrefix": {Reason: "A subnet needs a prefix length.", Spec: `{Options: {net6: "fd00::"}}`, Refused: []string{"spec.Options.net6"}},
		"PoolCIDR": {Reason: "A pool may be a subnet of net6.", Spec: `{Options: {net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::1:0/112"}}}`},
		"PoolAlone": {
			Reason: "A pool is a part of a subnet.", Spec: `{Options: {allocation_pool_v6: {cidr: "fd00::1:0/112"}}}`,
			Refused: []string{"spec.Options.allocation_pool_v6", "set net6"},
		},
		"PoolOutside": {
			Reason: "The message must name the value and the subnet.", Spec: `{Options: {net6: "fd00::/64", allocation_pool_v6: {cidr: "fd01::/112"}}}`,
			Refused: []string{"spec.Options.allocation_pool_v6.cidr", "fd01::/112", "fd00::/64"},
		},
		"PoolWider": {
			Reason: "A pool must not be larger than its subnet.", Spec: `{Options: {net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::/48"}}}`,
			Refused: []string{"spec.Options.allocation_pool_v6.cidr"},
		},
		"StartOutside": {
			Reason: "The message must name the value and the subnet.", Spec: `{Options: {net6: "fd00::/64", allocation_pool_v6: {start: "fd00:0:0:1::"}}}`,
			Refused: []string{"spec.Options.allocation_pool_v6.start", "fd00:0:0:1::", "fd00::/64"},
		},
		"StartOutsidePool": {
			Reason: "The ends must be in the pool's own cidr too.",
			Spec:   `{Options: {net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::1:0/112", start: "fd00::2:1"}}}`, Refused: []string{"allocation_pool_v6.start"},
		},
		"EndOutsidePool": {
			Reason: "The ends must be in the pool's own cidr too.",
			Spec:   `{Options: {net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::1:0/112", end: "fd00::2:1"}}}`, Refused: []string{"allocation_pool_v6.end"},
		},
		"Order": {
			Reason: "Groups are ordered as hexadecimal numbers of different lengths.",
			Spec:   `{Options: {net6: "fd00::/64", allocation_pool_v6: {start: "fd00::f", end: "fd00::10"}}}`,
		},
		"OrderManyZeros": {
			Reason: "Zeros may be omitted at the front, in the middle, at the end or not at all.",
			Spec:   `{Options: {net6: "::1:0:0:0/80", allocation_pool_v6: {start: "::1:0:0:1", end: "0:0:0:0:1:0:1:0"}}}`,
		},
		"OrderTrailing": {
			Reason: "Omitted groups at the end are zeros.",
			Spec:   `{Options: {net6: "fd00::/16", allocation_pool_v6: {start: "fd00::", end: "fd00:0:0:0:1::"}}}`,
		},
		"OrderUpperCase": {
			Reason: "Letters compare as digits in either case.",
			Spec:   `{Options: {net6: "fd00::/64", allocation_pool_v6: {start: "fd00::B", end: "FD00::c"}}}`,
		},
		"EndFirst": {
			Reason:  "Groups are ordered as numbers: f is before 10.",
			Spec:    `{Options: {net6: "fd00::/64", allocation_pool_v6: {start: "fd00::10", end: "fd00::f"}}}`,
			Refused: []string{"spec.Options.allocation_pool_v6.end", "fd00::f", "before start fd00::10"},
		},
		"EndFirstHighGroup": {
			Reason:  "A later group does not make up for an earlier one.",
			Spec:    `{Options: {net6: "fd00::/16", allocation_pool_v6: {start: "fd00:2::", end: "fd00:1:ffff::"}}}`,
			Refused: []string{"spec.Options.allocation_pool_v6.end"},
		},
		"PoolOfFour": {
			Reason: "Addresses of both families must not be mixed.", Spec: `{Options: {net6: "fd00::/64", allocation_pool_v6: {start: 10.0.0.1}}}`,
			Refused: []string{"spec.Options.allocation_pool_v6.start", "IPv6"},
		},
		"Zone": {
			Reason: "A zone has no meaning on another node.", Spec: `{Options: {net6: "fd00::/64", allocation_pool_v6: {start: "fd00::1%eth0"}}}`,
			Refused: []string{"spec.Options.allocation_pool_v6.start"},
		},
	}
}

// SpecialSubnetRules are the cases of subnets with addresses for special purposes.
func SpecialSubnetRules() map[string]RuleCase {
	return map[string]RuleCase{
		"Default":          specialSubnet("cidr", "0.0.0.0/0", "The subnet contains all addresses."),
		"Half":             specialSubnet("cidr", "0.0.0.0/1", "The subnet contains loopback addresses."),
		"UpperHalf":        specialSubnet("cidr", "128.0.0.0/1", "The subnet contains multicast addresses."),
		"Unspecified":      specialSubnet("cidr", "0.0.0.0/24", "No host has an address of this network (RFC 1122)."),
		"Loopback":         specialSubnet("cidr", "127.0.0.0/8", "Loopback packets never leave a host."),
		"LoopbackHostBits": specialSubnet("cidr", "127.9.8.7/24", "A part of the loopback subnet with host bits is special too."),
		"LoopbackWithin":   specialSubnet("cidr", "126.0.0.0/7", "The subnet contains loopback addresses."),
		"LinkLocal":        specialSubnet("cidr", "169.254.169.0/24", "Clouds serve credentials at link-local addresses."),
		"Multicast":        specialSubnet("cidr", "239.1.0.0/16", "Hosts do not have multicast addresses."),
		"Broadcast":        specialSubnet("cidr", "255.255.255.0/24", "The subnet contains the limited broadcast address."),
		"BroadcastItself":  specialSubnet("cidr", "255.255.255.255/32", "The limited broadcast address is for all hosts."),
		"Default6":         specialSubnet("net6", "::/0", "The subnet contains all addresses."),
		"Unspecified6":     specialSubnet("net6", "::/128", "No host has the unspecified address."),
		"Loopback6":        specialSubnet("net6", "::1/128", "Loopback packets never leave a host."),
		"Compatible":       specialSubnet("net6", "::10.0.0.0/120", "IPv4-compatible addresses are deprecated (RFC 4291)."),
		"AroundMapped":     specialSubnet("net6", "::ff00:0:0/88", "The subnet contains IPv4-mapped addresses."),
		"LinkLocal6":       specialSubnet("net6", "fe80::/64", "Each link has this subnet."),
		"LinkLocalWithin":  specialSubnet("net6", "fe00::/8", "The subnet contains link-local addresses."),
		"Multicast6":       specialSubnet("net6", "ff02::/64", "Hosts do not have multicast addresses."),
		"BesideLoopback":   {Reason: "Hosts have addresses in 126.0.0.0/8.", Spec: `{Options: {cidr: 126.0.0.0/8}}`},
		"BesideMulticast":  {Reason: "Hosts have addresses in 223.0.0.0/8.", Spec: `{Options: {cidr: 223.255.255.0/24}}`},
		"Reserved":         {Reason: "Linux accepts 240.0.0.0/4, and some networks use it.", Spec: `{Options: {cidr: 240.0.0.0/8}}`},
		"Shared":           {Reason: "Shared address space is allowed (RFC 6598).", Spec: `{Options: {cidr: 100.64.0.0/10}}`},
		"Translated":       {Reason: "The prefix of NAT64 is global.", Spec: `{Options: {net6: "64:ff9b::/96"}}`},
		"BesideLinkLocal":  {Reason: "Unique local subnets are allowed.", Spec: `{Options: {net6: "fd80::/64"}}`},
	}
}

// specialSubnet is the case of a subnet with addresses for special purposes.
func specialSubnet(field, subnet, reason string) RuleCase {
	return RuleCase{
		Reason: reason, Spec: fmt.Sprintf(`{Options: {%s: "%s"}}`, field, subnet),
		Refused: []string{"spec.Options." + field, "must be outside", "special purposes"},
	}
}

// RouteRules are the cases of destinations and gateways.
func RouteRules() map[string]RuleCase {
	return map[string]RuleCase{
		"Route":   {Reason: "A route maps a destination to a gateway.", Spec: `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: 10.0.0.1}}}`},
		"Default": {Reason: "A default route is allowed.", Spec: `{Options: {cidr: 10.0.0.0/24, routes: {0.0.0.0/0: 10.0.0.1}}}`},
		"Route6":  {Reason: "IPv6 routes are allowed.", Spec: `{Options: {net6: "fd00::/64", routes6: {"::/0": "fd00::1"}}}`},
		"Alone": {
			Reason: "A gateway is an address of the subnet.", Spec: `{Options: {routes: {10.1.0.0/16: 10.0.0.1}}}`,
			Refused: []string{"spec.Options.routes", "set cidr"},
		},
		"Alone6": {
			Reason: "A gateway is an address of the subnet.", Spec: `{Options: {cidr: 10.0.0.0/24, routes6: {"::/0": "fd00::1"}}}`,
			Refused: []string{"spec.Options.routes6", "set net6"},
		},
		"GatewayOutside": {
			Reason: "The kernel cannot reach a gateway outside the subnet.", Spec: `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: 10.0.1.1}}}`,
			Refused: []string{"spec.Options.routes", "in cidr 10.0.0.0/24", "10.1.0.0/16", "10.0.1.1"},
		},
		"GatewayOutside6": {
			Reason: "The kernel cannot reach a gateway outside the subnet.", Spec: `{Options: {net6: "fd00::/64", routes6: {"::/0": "fe80::1"}}}`,
			Refused: []string{"spec.Options.routes6", "in net6 fd00::/64", "::/0", "fe80::1"},
		},
		"BadGateway": {
			Reason: "A gateway must be an address.", Spec: `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: router}}}`,
			Refused: []string{"spec.Options.routes[10.1.0.0/16]", "must be an IPv4 address"},
		},
		"EmptyGateway": {
			Reason: "A gateway must be an address.", Spec: `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: ""}}}`,
			Refused: []string{"spec.Options.routes"},
		},
		"BadDestination": {
			Reason: "A destination must be a subnet.", Spec: `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0: 10.0.0.1}}}`,
			Refused: []string{"spec.Options.routes", "prefix length", `"10.1.0.0"`},
		},
		"SixInRoutes": {
			Reason: "Addresses of both families must not be mixed.", Spec: `{Options: {cidr: 10.0.0.0/24, routes: {"::/0": 10.0.0.1}}}`,
			Refused: []string{"spec.Options.routes", "IPv4 subnet"},
		},
		"FourInRoutes6": {
			Reason: "Addresses of both families must not be mixed.", Spec: `{Options: {net6: "fd00::/64", routes6: {10.0.0.0/8: "fd00::1"}}}`,
			Refused: []string{"spec.Options.routes6", "IPv6 subnet"},
		},
		"SameTwice": {
			Reason:  "The kernel would reject the second route.",
			Spec:    `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: 10.0.0.1, 10.1.2.3/16: 10.0.0.2}}}`,
			Refused: []string{"spec.Options.routes", "must not have "},
		},
		"Many":    {Reason: "64 are allowed.", Spec: manyRoutes(64)},
		"TooMany": {Reason: "65 are too many.", Spec: manyRoutes(65), Refused: []string{"spec.Options.routes", "64"}},
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

// StaticPoolRules are the cases of the ranges of static addresses.
func StaticPoolRules() map[string]RuleCase {
	const dual = `cidr: 10.0.0.0/8, net6: "fd00::/64", `
	in := func(ranges string) string { return "{Options: {" + dual + "static_pool: [" + ranges + "]}}" }
	return map[string]RuleCase{
		"None":      {Reason: "An empty list allows no static addresses.", Spec: in("")},
		"NoSubnet":  {Reason: "An empty list is allowed without subnets.", Spec: `{Options: {static_pool: []}}`},
		"One":       {Reason: "A range of one address needs no end.", Spec: in(`{start: 10.0.0.7}, {start: "fd00::7", end: ""}`)},
		"Ranges":    {Reason: "A list may have ranges of both families.", Spec: in(`{start: 10.0.0.7, end: 10.0.0.9}, {start: "fd00::7", end: "fd00::9"}`)},
		"ByNumber":  {Reason: "Addresses are not ordered as texts.", Spec: in(`{start: 10.9.255.255, end: 10.10.0.0}`)},
		"ByNumber6": {Reason: "Addresses are not ordered as texts.", Spec: in(`{start: "fd00::9", end: "fd00::10"}`)},
		"Words":     {Reason: "The ends of a pool must be addresses.", Spec: in(`{start: any}`), Refused: []string{"spec.Options.static_pool[0].start", "IPv4 or IPv6"}},
		"EmptyStart": {
			Reason: "A range needs a start.", Spec: in(`{start: "", end: 10.0.0.9}`), Refused: []string{"spec.Options.static_pool[0].start"},
		},
		"BadEnd":   {Reason: "The ends of a pool must be addresses.", Spec: in(`{start: 10.0.0.7, end: 10.0.0.256}`), Refused: []string{"spec.Options.static_pool[0].end", "same family"}},
		"Mixed":    {Reason: "Addresses of both families must not be mixed.", Spec: in(`{start: 10.0.0.7, end: "fd00::9"}`), Refused: []string{"spec.Options.static_pool[0].end", "same family"}},
		"Mapped":   {Reason: "An IPv4-mapped address is not an IPv6 address.", Spec: in(`{start: "::ffff:10.0.0.7"}`), Refused: []string{"spec.Options.static_pool[0].start"}},
		"EndFirst": {Reason: "Addresses are ordered as numbers: 9 is before 10.", Spec: in(`{start: 10.0.0.10, end: 10.0.0.9}`), Refused: []string{"spec.Options.static_pool[0].end", "before start 10.0.0.10"}},
		"EndFirst6": {
			Reason: "Every range is checked.", Spec: in(`{start: "fd00::1"}, {start: "fd00::10", end: "fd00::f"}`),
			Refused: []string{"spec.Options.static_pool[1].end", "before start fd00::10"},
		},
		"Outside":    {Reason: "No Pod could get an address outside the subnets.", Spec: in(`{start: 11.0.0.1}`), Refused: []string{"spec.Options.static_pool", "in cidr or net6: use addresses of"}},
		"EndOutside": {Reason: "The whole range must be in the subnet.", Spec: in(`{start: 10.0.0.1, end: 11.0.0.1}`), Refused: []string{"spec.Options.static_pool", "in cidr or net6: use addresses of"}},
		"Outside6":   {Reason: "No Pod could get an address outside the subnets.", Spec: in(`{start: "fd00:0:0:1::1"}`), Refused: []string{"spec.Options.static_pool", "in cidr or net6: use addresses of"}},
		"OtherFamily": {
			Reason: "The network has no subnet of this family.", Spec: `{Options: {net6: "fd00::/64", static_pool: [{start: 10.0.0.1}]}}`,
			Refused: []string{"spec.Options.static_pool", "in cidr or net6: use addresses of"},
		},
		"Many":    {Reason: "256 are allowed.", Spec: manyRanges(256)},
		"TooMany": {Reason: "257 are too many.", Spec: manyRanges(257), Refused: []string{"spec.Options.static_pool", "256"}},
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
