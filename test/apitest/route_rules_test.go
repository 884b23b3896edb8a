// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestRouteRules(t *testing.T) {
	t.Parallel()
	runRules(t, map[string]ruleCase{
		"Route":   {reason: "Destination to gateway.", spec: `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: 10.0.0.1}}}`},
		"Default": {reason: "A default route.", spec: `{Options: {cidr: 10.0.0.0/24, routes: {0.0.0.0/0: 10.0.0.1}}}`},
		"Route6":  {reason: "The same for IPv6.", spec: `{Options: {net6: "fd00::/64", routes6: {"::/0": "fd00::1"}}}`},
		"Alone": {
			reason: "A gateway is an address of the subnet.", spec: `{Options: {routes: {10.1.0.0/16: 10.0.0.1}}}`,
			refused: []string{"spec.Options.routes", "set cidr"},
		},
		"Alone6": {
			reason: "A gateway is an address of the subnet.", spec: `{Options: {cidr: 10.0.0.0/24, routes6: {"::/0": "fd00::1"}}}`,
			refused: []string{"spec.Options.routes6", "set net6"},
		},
		"GatewayOutside": {
			reason: "The kernel could not reach it.", spec: `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: 10.0.1.1}}}`,
			refused: []string{"spec.Options.routes", "outside cidr 10.0.0.0/24"},
		},
		"GatewayOutside6": {
			reason: "The kernel could not reach it.", spec: `{Options: {net6: "fd00::/64", routes6: {"::/0": "fe80::1"}}}`,
			refused: []string{"spec.Options.routes6", "outside net6 fd00::/64"},
		},
		"BadGateway": {
			reason: "A gateway is an address.", spec: `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: router}}}`,
			refused: []string{"spec.Options.routes", "gateway", "IPv4 address"},
		},
		"EmptyGateway": {
			reason: "A gateway is an address.", spec: `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: ""}}}`,
			refused: []string{"spec.Options.routes"},
		},
		"BadDestination": {
			reason: "A destination is a subnet.", spec: `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0: 10.0.0.1}}}`,
			refused: []string{"spec.Options.routes", "prefix length"},
		},
		"SixInRoutes": {
			reason: "Families do not mix.", spec: `{Options: {cidr: 10.0.0.0/24, routes: {"::/0": 10.0.0.1}}}`,
			refused: []string{"spec.Options.routes", "IPv4 subnet"},
		},
		"FourInRoutes6": {
			reason: "Families do not mix.", spec: `{Options: {net6: "fd00::/64", routes6: {10.0.0.0/8: "fd00::1"}}}`,
			refused: []string{"spec.Options.routes6", "IPv6 subnet"},
		},
		"SameTwice": {
			reason:  "The kernel would refuse the second.",
			spec:    `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: 10.0.0.1, 10.1.2.3/16: 10.0.0.2}}}`,
			refused: []string{"spec.Options.routes", "same subnet"},
		},
		"Many":    {reason: "64 are allowed.", spec: manyRoutes(64)},
		"TooMany": {reason: "65 are not.", spec: manyRoutes(65), refused: []string{"spec.Options.routes", "64"}},
	})
}

func manyRoutes(n int) string {
	var b strings.Builder
	b.WriteString("Options:\n  cidr: 10.0.0.0/24\n  routes:\n")
	for i := range n {
		fmt.Fprintf(&b, "    10.1.%d.0/24: 10.0.0.1\n", i)
	}
	return b.String()
}
