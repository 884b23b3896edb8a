// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import "testing"

// Subnets and the pools within them, IPv4.
func TestSubnetRules(t *testing.T) {
	t.Parallel()
	runRules(t, map[string]ruleCase{
		"CIDR":     {reason: "An IPv4 subnet.", spec: `{Options: {cidr: 10.0.0.0/24}}`},
		"HostBits": {reason: "DANM takes the subnet of an address.", spec: `{Options: {cidr: 10.0.0.7/24}}`},
		"NoPrefix": {reason: "A subnet has a length.", spec: `{Options: {cidr: 10.0.0.0}}`, refused: []string{"spec.Options.cidr", "prefix length"}},
		"SixInFour": {
			reason: "IPv6 has a field of its own.", spec: `{Options: {cidr: "fd00::/64"}}`,
			refused: []string{"spec.Options.cidr", "IPv4 subnet"},
		},
		"BadPrefix": {reason: "32 bits at most.", spec: `{Options: {cidr: 10.0.0.0/33}}`, refused: []string{"spec.Options.cidr"}},
		"Words":     {reason: "Not a subnet.", spec: `{Options: {cidr: any}}`, refused: []string{"spec.Options.cidr"}},
		"Pool":      {reason: "A part of the subnet.", spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.20}}}`},
		"PoolOfOne": {reason: "One address is a pool.", spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.10}}}`},
		"HalfPool":  {reason: "The other end is the subnet's.", spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10}}}`},
		"PoolAlone": {
			reason: "A pool is a part of a subnet.", spec: `{Options: {allocation_pool: {start: 10.0.0.10}}}`,
			refused: []string{"spec.Options.allocation_pool", "set cidr"},
		},
		"StartOutside": {
			reason: "The message names both.", spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.1.10}}}`,
			refused: []string{"spec.Options.allocation_pool.start", "10.0.1.10", "10.0.0.0/24"},
		},
		"EndOutside": {
			reason: "The message names both.", spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {end: 10.0.1.10}}}`,
			refused: []string{"spec.Options.allocation_pool.end", "10.0.1.10", "10.0.0.0/24"},
		},
		"EndFirst": {
			reason: "As numbers, 9 is before 10.", spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.9}}}`,
			refused: []string{"spec.Options.allocation_pool.end", "10.0.0.9", "before start 10.0.0.10"},
		},
		"HighOctetsOrder": {
			reason: "An order by text would refuse it.",
			spec:   `{Options: {cidr: 10.0.0.0/8, allocation_pool: {start: 10.9.255.255, end: 10.10.0.0}}}`,
		},
		"SignBit": {
			reason: "An order by signed 32 bits would refuse it.",
			spec:   `{Options: {cidr: 0.0.0.0/0, allocation_pool: {start: 127.0.0.1, end: 128.0.0.1}}}`,
		},
		"MiddleOctetDown": {
			reason: "A later octet does not make up for an earlier one.",
			spec:   `{Options: {cidr: 10.0.0.0/8, allocation_pool: {start: 10.2.0.0, end: 10.1.255.255}}}`, refused: []string{"allocation_pool.end"},
		},
		"PoolNoAddress": {
			reason: "An end is an address.", spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.0/25}}}`,
			refused: []string{"spec.Options.allocation_pool.start", `"10.0.0.0/25"`},
		},
		"PoolOfSix": {
			reason: "Families do not mix.", spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {end: "fd00::1"}}}`,
			refused: []string{"spec.Options.allocation_pool.end", "IPv4"},
		},
		"BadLastIP": {
			reason: "DANM's cursor is an address.", spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {lastIp: x}}}`,
			refused: []string{"spec.Options.allocation_pool.lastIp"},
		},
		"LeadingZero": {
			reason: "010 is 10 or 8: RFC 6943 3.1.1.", spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.010}}}`,
			refused: []string{"spec.Options.allocation_pool.start"},
		},
	})
}

// Subnets and the pools within them, IPv6.
func TestSubnet6Rules(t *testing.T) {
	t.Parallel()
	runRules(t, map[string]ruleCase{
		"Net6":     {reason: "An IPv6 subnet.", spec: `{Options: {net6: "fd00::/64"}}`},
		"Longest":  {reason: "Every notation of RFC 4291 fits.", spec: `{Options: {net6: "fd00:1111:2222:3333:4444:5555:6666:7777/128"}}`},
		"Dual":     {reason: "Dual stack.", spec: `{Options: {cidr: 10.0.0.0/24, net6: "fd00::/64"}}`},
		"FourIn6":  {reason: "IPv4 has a field of its own.", spec: `{Options: {net6: 10.0.0.0/24}}`, refused: []string{"spec.Options.net6", "IPv6 subnet"}},
		"Mapped":   {reason: "A mapped IPv4 subnet is not IPv6.", spec: `{Options: {net6: "::ffff:10.0.0.0/120"}}`, refused: []string{"spec.Options.net6"}},
		"NoPrefix": {reason: "A subnet has a length.", spec: `{Options: {net6: "fd00::"}}`, refused: []string{"spec.Options.net6"}},
		"PoolCIDR": {reason: "A part of net6.", spec: `{Options: {net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::1:0/112"}}}`},
		"PoolAlone": {
			reason: "A pool is a part of a subnet.", spec: `{Options: {allocation_pool_v6: {cidr: "fd00::1:0/112"}}}`,
			refused: []string{"spec.Options.allocation_pool_v6", "set net6"},
		},
		"PoolOutside": {
			reason: "The message names both.", spec: `{Options: {net6: "fd00::/64", allocation_pool_v6: {cidr: "fd01::/112"}}}`,
			refused: []string{"spec.Options.allocation_pool_v6.cidr", "fd01::/112", "fd00::/64"},
		},
		"PoolWider": {
			reason: "A pool is no larger than its subnet.", spec: `{Options: {net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::/48"}}}`,
			refused: []string{"spec.Options.allocation_pool_v6.cidr"},
		},
		"StartOutside": {
			reason: "The message names both.", spec: `{Options: {net6: "fd00::/64", allocation_pool_v6: {start: "fd00:0:0:1::"}}}`,
			refused: []string{"spec.Options.allocation_pool_v6.start", "fd00:0:0:1::", "fd00::/64"},
		},
		"StartOutsidePool": {
			reason: "Within the pool's own subnet, too.",
			spec:   `{Options: {net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::1:0/112", start: "fd00::2:1"}}}`, refused: []string{"allocation_pool_v6.start"},
		},
		"EndOutsidePool": {
			reason: "Within the pool's own subnet, too.",
			spec:   `{Options: {net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::1:0/112", end: "fd00::2:1"}}}`, refused: []string{"allocation_pool_v6.end"},
		},
		"Order": {
			reason: "Hexadecimal, of different lengths.",
			spec:   `{Options: {net6: "fd00::/64", allocation_pool_v6: {start: "fd00::f", end: "fd00::10"}}}`,
		},
		"OrderManyZeros": {
			reason: "Zeros may be left out at the front, in the middle, at the end or nowhere.",
			spec:   `{Options: {net6: "::/0", allocation_pool_v6: {start: "::1", end: "fd00:0:0:0:0:0:0:0"}}}`,
		},
		"OrderTrailing": {
			reason: "A trailing gap is zeros.",
			spec:   `{Options: {net6: "::/0", allocation_pool_v6: {start: "fd00::", end: "fd00:0:0:0:1::"}}}`,
		},
		"OrderUpperCase": {
			reason: "Letters compare as digits in either case.",
			spec:   `{Options: {net6: "fd00::/64", allocation_pool_v6: {start: "fd00::B", end: "FD00::c"}}}`,
		},
		"EndFirst": {
			reason:  "As numbers, f is before 10.",
			spec:    `{Options: {net6: "fd00::/64", allocation_pool_v6: {start: "fd00::10", end: "fd00::f"}}}`,
			refused: []string{"spec.Options.allocation_pool_v6.end", "fd00::f", "before start fd00::10"},
		},
		"EndFirstHighGroup": {
			reason:  "A later group does not make up for an earlier one.",
			spec:    `{Options: {net6: "fd00::/16", allocation_pool_v6: {start: "fd00:2::", end: "fd00:1:ffff::"}}}`,
			refused: []string{"spec.Options.allocation_pool_v6.end"},
		},
		"PoolOfFour": {
			reason: "Families do not mix.", spec: `{Options: {net6: "fd00::/64", allocation_pool_v6: {start: 10.0.0.1}}}`,
			refused: []string{"spec.Options.allocation_pool_v6.start", "IPv6"},
		},
		"Zone": {
			reason: "A zone means nothing on another node.", spec: `{Options: {net6: "fe80::/64", allocation_pool_v6: {start: "fe80::1%eth0"}}}`,
			refused: []string{"spec.Options.allocation_pool_v6.start"},
		},
	})
}
