// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/gc"
)

func TestAwaitedNodes(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason      string
		nodes, done []string
		skip        string
		want        []string
	}{
		"All":     {reason: "No node has reported.", nodes: []string{"b", "a"}, want: []string{"a", "b"}},
		"Some":    {reason: "One node has reported.", nodes: []string{"a", "b"}, done: []string{"b"}, want: []string{"a"}},
		"Skipped": {reason: "A person skips a node that is powered off.", nodes: []string{"a", "b"}, done: []string{"b"}, skip: "a"},
		"Spaces":  {reason: "People write spaces into lists.", nodes: []string{"a", "b", "c"}, skip: " a, b ,,", want: []string{"c"}},
		"Gone":    {reason: "A node that reported may have been deleted since.", nodes: []string{"a"}, done: []string{"a", "x"}},
		"None":    {reason: "A cluster without nodes waits for none."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, awaitedNodes(tc.nodes, tc.done, skippedNodes(tc.nodes, tc.skip))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A tenant's annotation may have 256 KiB, and one controller reads those of all networks.
func TestSkipCostsNoMoreThanItsLength(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 500_000 { // more than fit: a quadratic comparison would take minutes
		fmt.Fprintf(&text, "%x,", i)
	}
	start := time.Now()
	if diff := cmp.Diff([]string{"ffff"}, skippedNodes([]string{"ffff", "node"}, text.String())); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
}

// The API server rejects an Event of more than 1 KiB, and a condition of more than 32 KiB.
func TestMessagesAreShortAndSayWhatToDo(t *testing.T) {
	t.Parallel()
	var names []string
	many := map[string]metav1.MicroTime{}
	for i := range 1000 {
		names = append(names, fmt.Sprintf("node-%d.%s.example.com", i, strings.Repeat("x", 30)))
		many[names[i]] = metav1.NewMicroTime(time.Unix(0, 0))
	}
	var longest, pods []string // names of Nodes and Pods have at most 253 bytes
	deferred := map[string]metav1.MicroTime{}
	for i := range 1000 {
		name := fmt.Sprintf("%0253d", i)
		longest, pods = append(longest, name), append(pods, "ns/"+name)
		deferred[name] = metav1.NewMicroTime(time.Unix(0, 0))
	}
	conflict := conflictOf("10.0.0.1", pods...)
	cases := map[string]struct {
		reason, text, want string
	}{
		"Longest":         {reason: "Names may have 253 bytes.", text: recoveringMessage(recoveryProgress{since: "noon", awaited: longest, skipped: longest}), want: "and 999 more. To exclude a powered-off node: kubectl patchbay ipam skip NODE"},
		"LongestDeferred": {reason: "Names may have 253 bytes.", text: deferredMessage(deferred), want: "and 999 more. Until then"},
		"Owners":          {reason: "A compromised node claims one address for many Pods.", text: podConflictMessage(network.Ref{Kind: "ClusterNetwork", Name: "net"}, conflict, conflict.Owners[0]), want: "and 998 more: connections of both may fail"},
		"Recovering":      {reason: "The message has the command that excludes a node.", text: recoveringMessage(recoveryProgress{since: "noon", awaited: names}), want: "kubectl patchbay ipam skip NODE"},
		"Awaited":         {reason: "The message has the number of awaited nodes.", text: recoveringMessage(recoveryProgress{since: "noon", awaited: names}), want: "and 994 more"},
		"Skipped":         {reason: "The message names the skipped nodes.", text: recoveringMessage(recoveryProgress{awaited: []string{"a"}, skipped: []string{"b"}}), want: "Left out on request: b"},
		"Deferred":        {reason: "The message has the number of deferred nodes.", text: deferredMessage(many), want: "and 996 more"},
		"Exhausted":       {reason: "The message has the numbers.", text: poolMessage(v1.ReasonAddressesExhausted, poolWith("IPv4", 254, 254), ""), want: "254 of 254 IPv4"},
		"Enough":          {reason: "The message names the field with the present number.", text: poolMessage(v1.ReasonAddressesSufficient, poolWith("IPv6", 1, 254), ""), want: "status.pools"},
		"Unchanged":       {reason: "A rebuild that changed nothing is reported too.", text: rebuiltMessage(gc.Drift{}), want: "nothing had to change"},
		"Drift":           {reason: "The message has the changes of a rebuild.", text: rebuiltMessage(gc.Drift{Freed: 3, Marked: 2}), want: "3 unused addresses"},
		"Error":           {reason: "An error may be longer than an Event.", text: truncateMessage(strings.Repeat("é", 1000)), want: "…"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if len(tc.text) > 1024 || !strings.Contains(tc.text, tc.want) {
				t.Errorf("%s: %d bytes, want at most 1024 with %q: %s", tc.reason, len(tc.text), tc.want, tc.text)
			}
		})
	}
}

// Errors, and names that tenants and nodes choose, may have any length.
func TestEventsAreCut(t *testing.T) {
	t.Parallel()
	got := &fakeRecorder{}
	truncatingRecorder{got}.Event(nil, corev1.EventTypeWarning, v1.ReasonBitmapRebuildFailed, strings.Repeat("é", 1000))
	if text := (*got)[0]; len(text) > len("Warning BitmapRebuildFailed: ")+1024 || !strings.HasSuffix(text, "é…") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}
