// SPDX-License-Identifier: Apache-2.0

package network_test

import (
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
		"V4":              {reason: "Without network and broadcast.", options: `cidr: 10.0.0.0/24`, start: "10.0.0.1", end: "10.0.0.254"},
		"V4OddLength":     {reason: "A length in the middle of a byte.", options: `cidr: 10.0.0.0/20`, start: "10.0.0.1", end: "10.0.15.254"},
		"V4HostBits":      {reason: "The subnet of the address.", options: `cidr: 10.0.0.77/24`, start: "10.0.0.1", end: "10.0.0.254"},
		"V4Four":          {reason: "The smallest with a broadcast address.", options: `cidr: 10.0.0.4/30`, start: "10.0.0.5", end: "10.0.0.6"},
		"V4Two":           {reason: "RFC 3021: both are hosts.", options: `cidr: 10.0.0.4/31`, start: "10.0.0.4", end: "10.0.0.5"},
		"V4One":           {reason: "One address.", options: `cidr: 10.0.0.4/32`, start: "10.0.0.4", end: "10.0.0.4"},
		"V4All":           {reason: "No overflow.", options: `cidr: 192.0.0.0/3`, start: "192.0.0.1", end: "223.255.255.254"},
		"V4Start":         {reason: "The other end is the default.", options: `cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.9}`, start: "10.0.0.9", end: "10.0.0.254"},
		"V4End":           {reason: "The other end is the default.", options: `cidr: 10.0.0.0/24, allocation_pool: {end: 10.0.0.9}`, start: "10.0.0.1", end: "10.0.0.9"},
		"V4StartLast":     {reason: "Beyond the default end: one address.", options: `cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.255}`, start: "10.0.0.255", end: "10.0.0.255"},
		"V4EndFirst":      {reason: "Before the default start: one address.", options: `cidr: 10.0.0.0/24, allocation_pool: {end: 10.0.0.0}`, start: "10.0.0.0", end: "10.0.0.0"},
		"V4EmptyStrings":  {reason: "As DANM's clients write it.", options: `cidr: 10.0.0.0/24, allocation_pool: {start: "", end: ""}`, start: "10.0.0.1", end: "10.0.0.254"},
		"V6":              {reason: "All of net6.", options: `net6: "fd00::/64"`, start: "fd00::", end: "fd00::ffff:ffff:ffff:ffff"},
		"V6OddLength":     {reason: "A length in the middle of a byte.", options: `net6: "fd00::/125"`, start: "fd00::", end: "fd00::7"},
		"V6Two":           {reason: "RFC 6164.", options: `net6: "fd00::/127"`, start: "fd00::", end: "fd00::1"},
		"V6One":           {reason: "One address.", options: `net6: "fd00::5/128"`, start: "fd00::5", end: "fd00::5"},
		"V6CIDR":          {reason: "All of the pool's subnet.", options: `net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::1:0/112"}`, start: "fd00::1:0", end: "fd00::1:ffff"},
		"V6CIDRAndStart":  {reason: "The other end is the pool subnet's.", options: `net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::1:0/112", start: "fd00::1:9"}`, start: "fd00::1:9", end: "fd00::1:ffff"},
		"V6StartWithout":  {reason: "The other end is net6's.", options: `net6: "fd00::/64", allocation_pool_v6: {start: "fd00::9"}`, start: "fd00::9", end: "fd00::ffff:ffff:ffff:ffff"},
		"V6EmbeddedFour":  {reason: "RFC 6052 writes the end in decimal.", options: `net6: "64:ff9b::/96", allocation_pool_v6: {end: "64:ff9b::10.0.0.1"}`, start: "64:ff9b::", end: "64:ff9b::a00:1"},
		"V6SameBothWays":  {reason: "Two notations of one address.", options: `net6: "fd00::/64", allocation_pool_v6: {start: "fd00::A", end: "fd00:0:0:0::a"}`, start: "fd00::a", end: "fd00::a"},
		"V6ClosedAtFront": {reason: "Zeros at the front.", options: `net6: "::1:0:0:0/80", allocation_pool_v6: {start: "::1:0:0:0", end: "::1:0:0:1"}`, start: "::1:0:0:0", end: "::1:0:0:1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, err := network.FromObject(object(t, v1.KindDanmNet, "{Options: {"+tc.options+"}}"))
			if err != nil {
				t.Fatalf("%s\nFrom: %v", tc.reason, err)
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
