// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/gc"
)

// conflictOf returns a conflict about an address of these Pods, each on a node of its own.
func conflictOf(address string, pods ...string) gc.Conflict {
	c := gc.Conflict{Addr: netip.MustParseAddr(address)}
	for _, pod := range pods {
		namespace, name, _ := strings.Cut(pod, "/")
		c.Owners = append(c.Owners, gc.Owner{Namespace: namespace, Pod: name, PodUID: "uid-of-" + name, Endpoint: "ep-" + name, Node: "node-of-" + name})
	}
	return c
}

// duplicate returns the condition that was written for 10.0.0.1 of the Pods a and b.
func duplicate() metav1.Condition {
	return metav1.Condition{
		Type: v1.ConditionAddressConflict, Status: metav1.ConditionTrue, Reason: v1.ReasonDuplicateAddress, ObservedGeneration: 1,
		Message: conflictsMessage([]gc.Conflict{conflictOf("10.0.0.1", "ns/a", "ns/b")}),
	}
}

func withConflict(cn *v1.ClusterNetwork) {
	meta.SetStatusCondition(&cn.Status.Conditions, duplicate())
}

// Each Pod gets one Event of a conflict, and another one of another conflict.
func TestConflictsAreReportedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(true)
	r := dualStackNetwork(func(*v1.ClusterNetwork) {})
	report := func(want int, list ...gc.Conflict) {
		t.Helper()
		*b.events = nil
		b.audit.reportConflicts(t.Context(), r, list)
		if len(*b.events) != want {
			t.Errorf("Events %q, want %d", *b.events, want)
		}
		if got := testutil.CollectAndCount(b.metrics.conflicts); got != min(len(list), 1) {
			t.Errorf("%d conflicts give %d values of the metric", len(list), got)
		}
	}
	first, second := conflictOf("10.0.0.1", "ns/a", "ns/b"), conflictOf("10.0.0.2", "ns/a", "ns/c")
	report(2, first)
	report(0, first)
	report(2, first, second)
	report(0)
	report(2, first)
	var many []gc.Conflict
	for i := range 3 * maxConflictEvents {
		many = append(many, conflictOf(fmt.Sprint("10.0.0.", i), fmt.Sprint("ns/a", i), fmt.Sprint("ns/b", i)))
	}
	report(2*maxConflictEvents, many...)
	b.audit.pruneReported(map[network.Ref][]v1.PoolStatus{r.Ref: nil})
	report(0, many...)
	b.audit.pruneReported(nil)
	report(2*maxConflictEvents, many...)
}

func TestConflictText(t *testing.T) {
	t.Parallel()
	c := conflictOf("10.0.0.1", "ns/a", "ns/b", "other/c")
	c.Owners = append(c.Owners, gc.Owner{Node: "n4"})
	ref := network.Ref{Kind: v1.KindClusterNetwork, Name: "net"}
	var many []gc.Conflict
	for range maxNames + 3 {
		many = append(many, c)
	}
	cases := map[string]struct {
		reason, text string
		want, not    []string
	}{
		"Condition": {
			reason: "The condition names all owners.", text: conflictsMessage([]gc.Conflict{c}),
			want: []string{"10.0.0.1: Pod ns/a on node node-of-a and Pod ns/b", "Pod other/c on node node-of-c and node n4, by its entry"},
		},
		"Many": {reason: "A condition has a bounded length.", text: conflictsMessage(many), want: []string{"and 3 more"}},
		"Pod": {
			reason: "Readers of the Event may not be allowed to see other namespaces.", text: podConflictMessage(ref, c, c.Owners[0]),
			want: []string{"10.0.0.1 of " + ref.String() + " is also used by Pod b and a Pod of another namespace and another node:"}, not: []string{"other/", "node-of", "n4"},
		},
	}
	for name, tc := range cases {
		for _, part := range tc.want {
			if !strings.Contains(tc.text, part) {
				t.Errorf("%s: %s: %q does not have %q", name, tc.reason, tc.text, part)
			}
		}
		for _, part := range tc.not {
			if strings.Contains(tc.text, part) {
				t.Errorf("%s: %s: %q has %q", name, tc.reason, tc.text, part)
			}
		}
	}
}

// A network that did not change lately is reconciled soon after a change, and one that changes all
// the time at intervals of MinInterval.
func TestReconcileDelay(t *testing.T) {
	t.Parallel()
	b := newBench(false)
	ref := network.Ref{Kind: v1.KindClusterNetwork, Name: "net"}
	var got []time.Duration
	delay := func(after time.Duration) {
		b.now = b.now.Add(after)
		got = append(got, b.reconcileDelay(ref))
	}
	delay(0)
	b.lastReconciled.Store(ref, b.now)
	for _, after := range []time.Duration{0, time.Second, 3500 * time.Millisecond, time.Minute} {
		delay(after)
	}
	want := []time.Duration{time.Second, 5 * time.Second, 4 * time.Second, time.Second, time.Second}
	if !slices.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}
