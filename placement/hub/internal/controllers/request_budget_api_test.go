// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// hubRequests counts the requests of the hub that all tests share.
var hubRequests = &requestCounter{counts: map[string]int{}}

// requestCounter counts requests by method and path.
type requestCounter struct {
	mu     sync.Mutex
	counts map[string]int
}

// wrap counts the requests of a transport.
func (c *requestCounter) wrap(next http.RoundTripper) http.RoundTripper {
	return countedTransport{next, c}
}

// countedTransport is a transport whose requests are counted.
type countedTransport struct {
	next    http.RoundTripper
	counter *requestCounter
}

// RoundTrip implements http.RoundTripper.
func (t countedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.counter.mu.Lock()
	t.counter.counts[r.Method+" "+r.URL.Path]++
	t.counter.mu.Unlock()
	return t.next.RoundTrip(r)
}

// snapshot returns the requests so far.
func (c *requestCounter) snapshot() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// writesOf returns the writes since before to a namespace and to the one of its cluster, as lines. The status of the
// Cluster is no object's: it counts all of them.
func (c *requestCounter) writesOf(ns string, before map[string]int) (lines []string) {
	for request, n := range c.snapshot() {
		if strings.HasPrefix(request, http.MethodGet+" ") || !strings.Contains(request, ns) || strings.Contains(request, "/clusters/") {
			continue
		}
		for range n - before[request] {
			lines = append(lines, request)
		}
	}
	slices.Sort(lines)
	return lines
}

// The hub needs few writes for an object in one cluster. A report that takes longer than a second costs more: so the
// least of several objects counts, and of several attempts on a busy machine. Each object has a namespace of its own,
// since the path of a creation does not name it.
func TestWritesPerObject(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	const objects, attempts = 3, 5
	var spaces []string
	for i := range objects {
		spaces = append(spaces, h.namespace(fmt.Sprintf("budget-%d", i)))
		h.cluster(spaces[i], v1alpha1.ClusterSpec{})
	}
	for _, tc := range []struct {
		reason string
		do     func(ns string, attempt int)
		writes int
	}{
		{
			"An object without a status: its finalizer, the decision, the order and the report.",
			func(ns string, attempt int) { h.create(configMap(ns, fmt.Sprintf("settings-%d", attempt), ns)) }, 4,
		},
		{
			"An object with a status: that is written, too.",
			func(ns string, attempt int) {
				d := deployment(ns, fmt.Sprintf("web-%d", attempt), ns, 3)
				d.Spec.Template.Spec.Containers[0].EnvFrom = nil
				h.create(d)
			}, 5,
		},
		{
			"A change of the replicas: the decision, the order, the report and the object's status.",
			func(ns string, attempt int) { h.patchWeb(ns, `{"spec":{"replicas":%d}}`, 5+attempt) }, 4,
		},
		{
			"A change of the template keeps the decision.",
			func(ns string, attempt int) {
				h.patchWeb(ns, `{"spec":{"template":{"metadata":{"labels":{"new":"%d"}}}}}`, attempt)
			}, 3,
		},
	} {
		var least []string
		for attempt := 0; attempt < attempts && (attempt == 0 || len(least) > tc.writes); attempt++ {
			least = h.leastWrites(spaces, func(ns string) { tc.do(ns, attempt) })
		}
		if len(least) > tc.writes {
			t.Errorf("%s got %d writes, want at most %d:\n%s", tc.reason, len(least), tc.writes, strings.Join(least, "\n"))
		}
	}
}

// patchWeb changes the first Deployment of a namespace.
func (h *testHub) patchWeb(ns, format string, value int) {
	h.t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, value))
	if err := h.client.Patch(h.t.Context(), deployment(ns, "web-0", ns, 0), patch); err != nil {
		h.t.Fatal(err)
	}
}

// leastWrites does the same in each namespace, and returns the writes of the hub where there are fewest.
func (h *testHub) leastWrites(spaces []string, do func(ns string)) []string {
	h.t.Helper()
	h.quietIn(spaces, 1500*time.Millisecond)
	before := hubRequests.snapshot()
	for _, ns := range spaces {
		do(ns)
	}
	h.eventually("the first write", func(context.Context) error {
		for _, ns := range spaces {
			if len(hubRequests.writesOf(ns, before)) == 0 {
				return errNotYet
			}
		}
		return nil
	})
	h.quietIn(spaces, 1500*time.Millisecond)
	var all [][]string
	for _, ns := range spaces {
		all = append(all, hubRequests.writesOf(ns, before))
	}
	return slices.MinFunc(all, func(a, b []string) int { return len(a) - len(b) })
}

// quietIn waits until the hub writes nothing to these namespaces for this long.
func (h *testHub) quietIn(spaces []string, d time.Duration) {
	h.t.Helper()
	h.eventually("the writes to end", func(ctx context.Context) error {
		before := hubRequests.snapshot()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
		}
		for _, ns := range spaces {
			if lines := hubRequests.writesOf(ns, before); len(lines) > 0 {
				return fmt.Errorf("%w: %v", errNotYet, lines)
			}
		}
		return nil
	})
}
