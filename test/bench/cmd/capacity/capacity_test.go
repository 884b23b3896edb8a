// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
	}{
		"Unknown":      {reason: "The flag does not exist.", args: []string{"--nope"}},
		"NoNodes":      {reason: "The daemon needs a node.", args: []string{"--nodes=0"}},
		"NoPods":       {reason: "One Pod is attached.", args: []string{"--pods=0"}},
		"NoRuns":       {reason: "Without a run, there are no figures.", args: []string{"--runs=0"}},
		"ManyNodes":    {reason: "Each node has an address in the subnet of the NIC.", args: []string{"--nodes=70000"}},
		"ManyNetworks": {reason: "The VNIs begin at 1000.", args: []string{"--networks=5000"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := run(t.Context(), tc.args, io.Discard); err == nil {
				t.Errorf("%s run with %v: got no error, want one", tc.reason, tc.args)
			}
		})
	}
}

// Requests count for their user and in their time, and half a line is read when it is whole.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	line := func(user, verb, resource, subresource string, after time.Duration) string {
		return `{"verb":"` + verb + `","requestURI":"/apis?x","user":{"username":"` + user + `"},"objectRef":{"resource":"` + resource +
			`","subresource":"` + subresource + `"},"requestReceivedTimestamp":"` + at.Add(after).Format(time.RFC3339Nano) + `"}` + "\n"
	}
	text := line("a", "update", "leases", "", 0) + line("a", "update", "leases", "", time.Second) + line("a", "patch", "nodes", "status", time.Second) +
		line("b", "list", "pods", "", time.Second) + line("a", "watch", "pods", "", 2*time.Second) + line("a", "get", "", "", time.Second)
	log := &auditLog{file: filepath.Join(t.TempDir(), "audit.log")}
	var all []request
	for _, end := range []int{len(text) - 5, len(text)} {
		if err := os.WriteFile(log.file, []byte(text[:end]), 0o600); err != nil {
			t.Fatal(err)
		}
		more, err := log.read()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, more...)
	}
	got := countRequests(all, "a", at, at.Add(2*time.Second))
	if diff := cmp.Diff(count{"update leases": 2, "patch nodes/status": 1, "get /apis": 1}, got); diff != "" {
		t.Errorf("requests of a in two seconds (-want +got):\n%s", diff)
	}
	if requests, leases := got.sum(); requests != 4 || leases != 2 {
		t.Errorf("got %d requests, %d about Leases, want 4 and 2", requests, leases)
	}
	if got, want := got.String(), "1 get /apis, 1 patch nodes/status, 2 update leases"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (count{}).String(); got != "none" {
		t.Errorf("no requests: got %q, want none", got)
	}
}

// All nodes are in the subnet of the NIC, and the first one has the address of this host. Addresses of Pods are in
// their network's subnet, beside those that the first node takes.
func TestAddresses(t *testing.T) {
	t.Parallel()
	subnet := netip.PrefixFrom(netip.MustParseAddr(hostAddress), hostPrefix).Masked()
	seen := map[string]bool{}
	for i := range 5000 {
		a := nodeAddress(i)
		if seen[a] || !subnet.Contains(netip.MustParseAddr(a)) {
			t.Errorf("node %d has the address %s, want one of its own in %s", i, a, subnet)
		}
		seen[a] = true
	}
	if got := nodeAddress(0); got != hostAddress {
		t.Errorf("the first node has %s, want %s", got, hostAddress)
	}
	for k, want := range map[int]string{0: "10.102.0.10/16", 300: "10.102.1.54/16"} {
		if got := podAddress(2, k); got != want {
			t.Errorf("address %d of a network: got %s, want %s", k, got, want)
		}
	}
}
