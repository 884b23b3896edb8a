// SPDX-License-Identifier: Apache-2.0

package networktest

import (
	"fmt"
	"strings"
)

// RouteRules are about destinations and gateways.
func RouteRules() map[string]Case {
	return map[string]Case{
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
