// SPDX-License-Identifier: Apache-2.0

package debugapi

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
)

// A user has a number of open requests, for a cluster and for all, and others have theirs.
func TestOpenRequests(t *testing.T) {
	t.Parallel()
	l := newLimits()
	var ends []func()
	take := func(user, cluster string, want string) {
		t.Helper()
		end, err := l.begin(user, cluster)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Fatalf("%s at %s: got %v, want %q", user, cluster, err, want)
		}
		if err == nil {
			ends = append(ends, end)
		}
	}
	for range maxPerCluster {
		take("ann", "east", "")
	}
	take("ann", "east", "for Cluster east")
	take("bob", "east", "")
	for i := range maxPerUser - maxPerCluster {
		take("ann", "c"+strconv.Itoa(i), "")
	}
	take("ann", "west", "at most 200 open requests")
	ends[0]()
	take("ann", "east", "")
	for _, end := range ends[1:] {
		end()
	}
	if len(l.perUser) != 0 || len(l.perCluster) != 0 {
		t.Errorf("got %v %v: users without requests must be forgotten", l.perUser, l.perCluster)
	}
}

// A user who asks again and again gets 429 before any review.
func TestRequestRate(t *testing.T) {
	t.Parallel()
	l := newLimits()
	var last error
	for range 100 * burstPerUser {
		end, err := l.begin("ann", "east")
		if last = err; err != nil {
			break
		}
		end()
	}
	if last == nil || !strings.Contains(last.Error(), "in a second") {
		t.Errorf("got %v, want too many requests", last)
	}
	if _, err := l.begin("bob", "east"); err != nil {
		t.Errorf("another user: got %v", err)
	}
}

// fakeClock is a clock that tests set.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

// Now implements cache.Clock.
func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// A user's requests cost one review in ten seconds, and a request above the limit none.
func TestReviewsAreBounded(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	proxy := ca.client(t, "front-proxy-client")
	var asked atomic.Int64
	var allowed atomic.Bool
	allowed.Store(true)
	s := newTestServer(t, ca, func(authorizationv1.SubjectAccessReviewSpec) bool {
		asked.Add(1)
		return allowed.Load()
	})
	clock := &fakeClock{now: time.Now()}
	s.handler.access.reviewer.allowed = cache.NewLRUExpireCacheWithClock(allowedAnswers, clock)
	get := func(user, path string, want int, wantAsked int64) {
		t.Helper()
		before := asked.Load()
		response, err := s.do(t, &proxy, "GET", root+path, http.Header{"X-Remote-User": {user}})
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got := asked.Load() - before; response.StatusCode != want || got != wantAsked {
			t.Errorf("%s of %s: got %s and %d reviews, want %d and %d", path, user, response.Status, got, want, wantAsked)
		}
	}
	const all, web = "/clusters/east/proxy/version", "/namespaces/web/clusters/east/proxy/version"
	get("ann", all, 503, 1)
	get("ann", all, 503, 0)
	get("ann", web, 503, 1)                                                        // other rights
	get("bob", all, 503, 1)                                                        // another user
	get("ann", "/clusters/east/proxy/api/v1/namespaces/web/pods/a/proxy/", 503, 1) // another verb
	allowed.Store(false)
	clock.add(allowedLifetime + time.Second)
	get("ann", all, 403, 1)
	get("ann", all, 403, 1) // a refusal is asked again

	for range maxPerCluster {
		if _, err := s.handler.limits.begin("ann", "east"); err != nil {
			t.Fatal(err)
		}
	}
	get("ann", all, 429, 0)
}
