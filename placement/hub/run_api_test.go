// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package hub

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/placement/hub/internal/standalone"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// cancelAfter cancels a context at the last of a number of requests.
type cancelAfter struct {
	next   http.RoundTripper
	left   *atomic.Int32
	cancel context.CancelFunc
}

func (c cancelAfter) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.left.Add(-1) == 0 {
		c.cancel()
	}
	return c.next.RoundTrip(r)
}

// startTime bounds a start that sends fewer requests than the one to stop at. fewest is the number of requests
// that each start sends, also on a slow machine.
const (
	startTime = 30 * time.Second
	fewest    = 10
)

// The hub returns no error when its context ends at any request of its start.
func TestStopsAtEachRequest(t *testing.T) {
	t.Parallel()
	env := apitest.New(t)
	if err := standalone.Install(t.Context(), env.Config); err != nil {
		t.Fatal(err)
	}
	for _, elect := range []bool{false, true} {
		for _, n := range []int32{1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80} {
			if reached := stopAt(t, env.Config, n, elect); reached {
				continue
			}
			if n <= fewest {
				t.Errorf("with leader election %v: the hub sent fewer than %d requests in %v", elect, n, startTime)
			}
			break
		}
	}
}

// stopAt starts the hub and stops it at its n-th request. It returns false when the hub sent fewer.
func stopAt(t *testing.T, to *rest.Config, n int32, elect bool) (reached bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
	defer cancel()
	defer time.AfterFunc(startTime, cancel).Stop()
	left := &atomic.Int32{}
	left.Store(n)
	config := rest.CopyConfig(to)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return cancelAfter{next, left, cancel} })
	o := &options{healthAddress: "127.0.0.1:0", workers: 8, leaderElect: elect, namespace: "default"}
	if err := runUntilStopped(ctx, func(ctx context.Context) error { return runHub(ctx, config, o) }); err != nil {
		t.Errorf("at request %d, with leader election %v: got %v, want no error", n, elect, err)
	}
	return left.Load() <= 0
}
