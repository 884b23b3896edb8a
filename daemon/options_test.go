// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/internal/version"
)

func TestOptions(t *testing.T) {
	cases := map[string]struct {
		reason string
		env    string
		args   []string
		node   string
		err    string
	}{
		"Flag":         {reason: "the flag has precedence over the environment", args: []string{"--node-name=a"}, env: "b", node: "a"},
		"Environment":  {reason: "the downward API sets the variable", env: "b", node: "b"},
		"NoNode":       {reason: "a daemon without a Node cannot claim addresses", err: "--node-name"},
		"Arguments":    {reason: "a flag without its dashes is not ignored", args: []string{"--node-name=a", "debug"}, err: "arguments"},
		"SingleDash":   {reason: "flags have two dashes", args: []string{"-node-name=a"}, err: "unknown shorthand flag"},
		"NegativeHold": {reason: "0 disables the warm pool, and less is a mistake", args: []string{"--node-name=a", "--warm-pool-limit=-1"}, err: "--warm-pool-limit"},
		"NegativeCool": {reason: "a cooldown cannot be shorter than 0", args: []string{"--node-name=a", "--address-cooldown=-1s"}, err: "--address-cooldown"},
		"Ranges":       {reason: "the flag may be repeated, with subnets of both families", args: []string{"--node-name=a", "--vtep-ranges=ens5=10.50.0.0/16,fd00:50::/64", "--vtep-ranges=ens6=10.60.0.0/16"}, node: "a"},
		"RangeNoNIC":   {reason: "each range belongs to a NIC", args: []string{"--node-name=a", "--vtep-ranges=10.50.0.0/16"}, err: "NIC=CIDR"},
		"RangeHost":    {reason: "an address instead of a subnet is a mistake", args: []string{"--node-name=a", "--vtep-ranges=ens5=10.50.0.1/16"}, err: "10.50.0.1/16"},
		"Delegate":     {reason: "a file of the node is checked on the node", args: []string{"--node-name=a", "--default-delegate=10-calico.conflist"}, node: "a"},
		"NoDelegate":   {reason: "Pods cannot get a file and not start", args: []string{"--node-name=a", "--default-delegate=10-calico.conflist", "--node-configuration=false"}, err: "--default-delegate=10-calico.conflist and --node-configuration=false"},
		"Unknown":      {reason: "an unknown flag, such as one of another version, is not ignored", args: []string{"--nope"}, err: "nope"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NODE_NAME", tc.env)
			o, err := parseOptions(tc.args, io.Discard)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil || o.node != tc.node {
				t.Errorf("%s: got %+v, %v, want node %q", tc.reason, o, err, tc.node)
			}
		})
	}
}

func TestRunWithoutANode(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"Help":    {reason: "--help is not an error", args: []string{"--help"}, want: "--node-name"},
		"Version": {reason: "--version needs no other flag", args: []string{"--version"}, want: version.String()},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := Run(t.Context(), tc.args, &out, &out); err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
			if !strings.Contains(out.String(), tc.want) {
				t.Errorf("%s: %q has no %q", tc.reason, out.String(), tc.want)
			}
		})
	}
}
