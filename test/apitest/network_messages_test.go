// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"errors"
	"regexp"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A rule of a definition sees a map as a whole: its message must name the route at fault.
func TestRouteMessages(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, spec, want string
		or                 string // another right answer, as a map has no order
	}{
		"GatewayOutside": {
			reason: "One of two routes has a gateway outside.",
			spec:   `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: 10.0.0.1, 10.2.0.0/16: 10.0.1.1}}}`,
			want:   `spec.Options.routes: Invalid value: must be in cidr 10.0.0.0/24 as the gateway of 10.2.0.0/16: use an address of the subnet`,
		},
		"Gateway6Outside": {
			reason: "One of two routes has a gateway outside.",
			spec:   `{Options: {net6: "fd00::/64", routes6: {"fd01::/48": "fd00::1", "::/0": "fe80::1"}}}`,
			want:   `spec.Options.routes6: Invalid value: must be in net6 fd00::/64 as the gateway of ::/0: use an address of the subnet`,
		},
		"Gateway": {
			reason: "One of two routes has a name as its gateway.",
			spec:   `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: 10.0.0.1, 10.2.0.0/16: router}}}`,
			want:   `spec.Options.routes[10.2.0.0/16]: Invalid value: must be an IPv4 address, such as "10.0.0.1"`,
		},
		"Destination": {
			reason: "One of two routes has an address as its destination.",
			spec:   `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: 10.0.0.1, 10.2.0.0: 10.0.0.1}}}`,
			want:   `spec.Options.routes: Invalid value: must have destinations (its keys) that are IPv4 subnets with their prefix length, such as "10.1.0.0/16": correct "10.2.0.0"`,
		},
		"Destination6": {
			reason: "One of two routes is of the other family.",
			spec:   `{Options: {net6: "fd00::/64", routes6: {"fd01::/48": "fd00::1", 10.0.0.0/8: "fd00::1"}}}`,
			want:   `spec.Options.routes6: Invalid value: must have destinations (its keys) that are IPv6 subnets with their prefix length, such as "fd01::/48": correct "10.0.0.0/8"`,
		},
		"SameSubnet": {
			reason: "Two of three destinations are one subnet, because host bits are ignored.",
			spec:   `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: 10.0.0.1, 10.2.0.0/16: 10.0.0.1, 10.2.3.0/16: 10.0.0.2}}}`,
			want:   `spec.Options.routes: Invalid value: must not have two destinations (its keys) that are the same subnet: leave out 10.2.0.0/16`,
			or:     `spec.Options.routes: Invalid value: must not have two destinations (its keys) that are the same subnet: leave out 10.2.3.0/16`,
		},
	}
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				err := env.Client.Create(t.Context(), newNetwork(t, v1.KindClusterNetwork, tc.spec), client.DryRunAll)
				if got := causes(err); len(got) != 1 || got[0] != tc.want && got[0] != tc.or {
					t.Errorf("%s\ngot  %q\nwant %q", tc.reason, got, tc.want)
				}
			})
		}
	})
}

// writtenValue matches the value of a field, which API servers write in different ways: as it is, as its
// type, or not at all. Our message may begin with the value, too; test/mistakes has it.
var writtenValue = regexp.MustCompile(`Invalid value: (?:"[^"]*": )+`)

// causes returns the field and the message of each cause of an invalid object, as kubectl prints them,
// without the value.
func causes(err error) (texts []string) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	for _, c := range status.Status().Details.Causes {
		texts = append(texts, c.Field+": "+writtenValue.ReplaceAllString(c.Message, "Invalid value: "))
	}
	return texts
}
