// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

func TestPoolDefaults(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, options, start, end string
	}{
		"V4":              {reason: "The pool has no network and broadcast address.", options: `cidr: 10.0.0.0/24`, start: "10.0.0.1", end: "10.0.0.254"},
		"V4OddLength":     {reason: "A prefix may end in the middle of a byte.", options: `cidr: 10.0.0.0/20`, start: "10.0.0.1", end: "10.0.15.254"},
		"V4HostBits":      {reason: "Host bits are masked.", options: `cidr: 10.0.0.77/24`, start: "10.0.0.1", end: "10.0.0.254"},
		"V4Four":          {reason: "A /30 is the smallest subnet with a broadcast address.", options: `cidr: 10.0.0.4/30`, start: "10.0.0.5", end: "10.0.0.6"},
		"V4Two":           {reason: "Both addresses of a /31 are for hosts (RFC 3021).", options: `cidr: 10.0.0.4/31`, start: "10.0.0.4", end: "10.0.0.5"},
		"V4One":           {reason: "A subnet may have one address.", options: `cidr: 10.0.0.4/32`, start: "10.0.0.4", end: "10.0.0.4"},
		"V4All":           {reason: "The end does not overflow.", options: `cidr: 192.0.0.0/3`, start: "192.0.0.1", end: "223.255.255.254"},
		"V4Start":         {reason: "The other end is the default.", options: `cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.9}`, start: "10.0.0.9", end: "10.0.0.254"},
		"V4End":           {reason: "The other end is the default.", options: `cidr: 10.0.0.0/24, allocation_pool: {end: 10.0.0.9}`, start: "10.0.0.1", end: "10.0.0.9"},
		"V4StartLast":     {reason: "A start beyond the default end gives a pool of one address.", options: `cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.255}`, start: "10.0.0.255", end: "10.0.0.255"},
		"V4EndFirst":      {reason: "An end before the default start gives a pool of one address.", options: `cidr: 10.0.0.0/24, allocation_pool: {end: 10.0.0.0}`, start: "10.0.0.0", end: "10.0.0.0"},
		"V4EmptyStrings":  {reason: "DANM's clients write empty strings.", options: `cidr: 10.0.0.0/24, allocation_pool: {start: "", end: ""}`, start: "10.0.0.1", end: "10.0.0.254"},
		"V4LastIP":        {reason: "DANM's cursor has a prefix length, and is not read.", options: `cidr: 10.0.0.0/24, allocation_pool: {lastIp: 10.0.0.65/26}`, start: "10.0.0.1", end: "10.0.0.254"},
		"V6":              {reason: "The default pool is all of net6.", options: `net6: "fd00::/64"`, start: "fd00::", end: "fd00::ffff:ffff:ffff:ffff"},
		"V6OddLength":     {reason: "A prefix may end in the middle of a byte.", options: `net6: "fd00::/125"`, start: "fd00::", end: "fd00::7"},
		"V6Two":           {reason: "Both addresses of a /127 are for hosts (RFC 6164).", options: `net6: "fd00::/127"`, start: "fd00::", end: "fd00::1"},
		"V6One":           {reason: "A subnet may have one address.", options: `net6: "fd00::5/128"`, start: "fd00::5", end: "fd00::5"},
		"V6LastIP":        {reason: "DANM's cursor has a prefix length, and is not read.", options: `net6: "fd00::/125", allocation_pool_v6: {lastIp: "fd00::6/125"}`, start: "fd00::", end: "fd00::7"},
		"V6CIDR":          {reason: "The default pool is all of the pool's cidr.", options: `net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::1:0/112"}`, start: "fd00::1:0", end: "fd00::1:ffff"},
		"V6CIDRAndStart":  {reason: "The other end is that of the pool's cidr.", options: `net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::1:0/112", start: "fd00::1:9"}`, start: "fd00::1:9", end: "fd00::1:ffff"},
		"V6StartWithout":  {reason: "The other end is that of net6.", options: `net6: "fd00::/64", allocation_pool_v6: {start: "fd00::9"}`, start: "fd00::9", end: "fd00::ffff:ffff:ffff:ffff"},
		"V6EmbeddedFour":  {reason: "RFC 6052 has a notation with decimal digits.", options: `net6: "64:ff9b::/96", allocation_pool_v6: {end: "64:ff9b::10.0.0.1"}`, start: "64:ff9b::", end: "64:ff9b::a00:1"},
		"V6SameBothWays":  {reason: "An address has several notations.", options: `net6: "fd00::/64", allocation_pool_v6: {start: "fd00::A", end: "fd00:0:0:0::a"}`, start: "fd00::a", end: "fd00::a"},
		"V6ClosedAtFront": {reason: "Zeros at the front may be omitted.", options: `net6: "::1:0:0:0/80", allocation_pool_v6: {start: "::1:0:0:0", end: "::1:0:0:1"}`, start: "::1:0:0:0", end: "::1:0:0:1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, err := network.FromObject(object(t, v1.KindDanmNet, "{Options: {"+tc.options+"}}"))
			if err != nil {
				t.Fatalf("%s\nFromObject: %v", tc.reason, err)
			}
			s := n.V4
			if s == nil {
				s = n.V6
			}
			got := []string{s.Start.String(), s.End.String()}
			if diff := cmp.Diff([]string{tc.start, tc.end}, got); diff != "" {
				t.Errorf("%s\nStart and End: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestCheckPools(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, options, refused string }{
		"Default":   {reason: "A subnet has addresses.", options: `cidr: 10.0.0.0/29`},
		"One":       {reason: "One address is enough.", options: `cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.9, end: 10.0.0.9}`},
		"Point":     {reason: "Both addresses of a /31 are for hosts (RFC 3021).", options: `cidr: 10.0.0.4/31, routes: {10.9.0.0/16: 10.0.0.4}`},
		"None":      {reason: "A network may have no subnet."},
		"Largest":   {reason: "The check ends at the first address.", options: `net6: "fd00::/8"`},
		"Network":   {reason: "The network address is for no Pod.", options: `cidr: 10.0.0.0/24, allocation_pool: {end: 10.0.0.0}`, refused: "allocation_pool: Invalid value: \"10.0.0.0-10.0.0.0\""},
		"Broadcast": {reason: "The broadcast address is for no Pod.", options: `cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.255}`, refused: "allocation_pool: Invalid"},
		"Gateway":   {reason: "A gateway is another machine.", options: `cidr: 10.0.0.4/32, routes: {10.9.0.0/16: 10.0.0.4}`, refused: "gateway addresses of 10.0.0.4/32"},
		"Gateways":  {reason: "Gateways may take all addresses.", options: `cidr: 10.0.0.4/30, routes: {10.8.0.0/16: 10.0.0.5, 10.9.0.0/16: 10.0.0.6}`, refused: "allocation_pool: Invalid"},
		"IPv6":      {reason: "The subnet-router anycast address is for no Pod (RFC 4291).", options: `net6: "fd00::/64", allocation_pool_v6: {end: "fd00::"}`, refused: "allocation_pool_v6: Invalid"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, err := network.FromObject(object(t, v1.KindDanmNet, "{Options: {"+tc.options+"}}"))
			if err != nil {
				t.Fatal(err)
			}
			err = network.CheckPools(n)
			if (err != nil) != (tc.refused != "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s\nCheckPools: got %v, want %q", tc.reason, err, tc.refused)
			}
		})
	}
}
