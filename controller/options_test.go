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
		"Flag":        {reason: "the flag counts", args: []string{"--namespace=a"}, env: "b", namespace: "a", grace: 15 * time.Minute},
		"Environment": {reason: "the downward API's variable", env: "b", namespace: "b", grace: 15 * time.Minute},
		"Grace":       {reason: "a fleet whose machines take long to start", env: "b", args: []string{"--node-grace=1h"}, namespace: "b", grace: time.Hour},
		"Single":      {reason: "without a Lease no namespace is needed", args: []string{"--leader-elect=false"}, grace: 15 * time.Minute},
		"NoPort":      {reason: "told before anybody is connected to", args: []string{"--namespace=a", "--webhook-address=9642"}, err: "--webhook-address"},
		"Nowhere":     {reason: "two replicas without a Lease would both act", err: "--namespace"},
		"Hasty":       {reason: "a Node that is registered anew would lose what its Pods have", env: "b", args: []string{"--node-grace=5s"}, err: "at least 1m0s"},
		"Arguments":   {reason: "a flag that lost its dashes is not ignored", env: "b", args: []string{"debug"}, err: "arguments"},
		"Unknown":     {reason: "a flag of another version is not ignored", args: []string{"--nope"}, err: "nope"},
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
		"Help":    {reason: "help is no error", args: []string{"--help"}, want: "-node-grace"},
		"Version": {reason: "the version can be asked for anywhere", args: []string{"--version"}, want: version.String()},
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
		"Host":   {reason: "the node's own address only", address: "10.0.0.1:9642", host: "10.0.0.1", port: 9642},
		"All":    {reason: "a network namespace of its own", address: ":9642", port: 9642},
		"IPv6":   {reason: "as URLs write it", address: "[fd00::1]:9642", host: "fd00::1", port: 9642},
		"NoPort": {reason: "the Service's port is fixed", address: "10.0.0.1", err: "--webhook-address"},
		"Zero":   {reason: "any port is not the Service's", address: ":0", err: "1 to 65535"},
		"Name":   {reason: "names of ports mean nothing here", address: ":https", err: "1 to 65535"},
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
