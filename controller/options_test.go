// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/internal/version"
)

func TestOptions(t *testing.T) {
	cases := map[string]struct {
		reason    string
		env       string
		args      []string
		namespace string
		grace     time.Duration
		err       string
	}{
		"Flag":        {reason: "the flag has precedence over the environment", args: []string{"--namespace=a"}, env: "b", namespace: "a", grace: 15 * time.Minute},
		"Environment": {reason: "the downward API sets the variable", env: "b", namespace: "b", grace: 15 * time.Minute},
		"Grace":       {reason: "some machines take long to start", env: "b", args: []string{"--deleted-node-grace-period=1h"}, namespace: "b", grace: time.Hour},
		"Single":      {reason: "no namespace is needed without a Lease", args: []string{"--leader-elect=false"}, grace: 15 * time.Minute},
		"NoPort":      {reason: "the address is checked before the controller connects to an API server", args: []string{"--namespace=a", "--webhook-address=9642"}, err: "--webhook-address"},
		"NoNamespace": {reason: "two replicas without a Lease would both act", err: "--namespace"},
		"ShortGrace":  {reason: "a Node that is deleted and registered again would lose its Pods' addresses", env: "b", args: []string{"--deleted-node-grace-period=5s"}, err: "at least 1m0s"},
		"Arguments":   {reason: "a flag without its dashes is not ignored", env: "b", args: []string{"debug"}, err: "arguments"},
		"SingleDash":  {reason: "flags have two dashes", env: "b", args: []string{"-debug"}, err: "unknown shorthand flag"},
		"Ranges":      {reason: "each range is a subnet", env: "b", args: []string{"--cluster-ranges=10.244.0.0/16,pods"}, err: `"pods": must be a subnet`},
		"Unknown":     {reason: "an unknown flag, such as one of another version, is not ignored", args: []string{"--nope"}, err: "nope"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("POD_NAMESPACE", tc.env)
			o, err := parseOptions(tc.args, io.Discard)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil || o.namespace != tc.namespace || o.nodeGrace != tc.grace {
				t.Errorf("%s: got %+v, %v", tc.reason, o, err)
			}
		})
	}
}

func TestRunWithoutACluster(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"Help":    {reason: "--help is not an error", args: []string{"--help"}, want: "--deleted-node-grace-period"},
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

func TestSplitAddress(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		address string
		host    string
		port    int
		err     string
	}{
		"Host":   {reason: "the webhooks may listen on one address of the node", address: "10.0.0.1:9642", host: "10.0.0.1", port: 9642},
		"All":    {reason: "a Pod may listen on all its addresses", address: ":9642", port: 9642},
		"IPv6":   {reason: "an IPv6 address is in brackets, as in URLs", address: "[fd00::1]:9642", host: "fd00::1", port: 9642},
		"NoPort": {reason: "the Service needs a fixed port", address: "10.0.0.1", err: "--webhook-address"},
		"Zero":   {reason: "port 0 would be a random port", address: ":0", err: "1 to 65535"},
		"Name":   {reason: "port names are not resolved", address: ":https", err: "1 to 65535"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, port, err := parseWebhookAddress(tc.address)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil || host != tc.host || port != tc.port {
				t.Errorf("%s: got %s, %d, %v", tc.reason, host, port, err)
			}
		})
	}
}
