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

// ender asks for the end at the last of some requests.
type ender struct {
	next http.RoundTripper
	left *atomic.Int32
	end  context.CancelFunc
}

func (e ender) RoundTrip(r *http.Request) (*http.Response, error) {
	if e.left.Add(-1) == 0 {
		e.end()
	}
	return e.next.RoundTrip(r)
}

// startTime limits a start that makes fewer requests than the one to end at. fewest is how
// many every start makes, also on a slow machine.
const (
	startTime = 30 * time.Second
	fewest    = 10
)

// Whoever ends the hub while it starts has not made a mistake, whatever it asks just then.
func TestEndsAtEachRequest(t *testing.T) {
	t.Parallel()
	env := apitest.New(t)
	if err := standalone.Install(t.Context(), env.Config); err != nil {
		t.Fatal(err)
	}
	for _, elect := range []bool{false, true} {
		for _, n := range []int32{1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80} {
			if reached := endsAt(t, env.Config, n, elect); reached {
				continue
			}
			if n <= fewest {
				t.Errorf("with leader election %v: the hub made fewer than %d requests in %v", elect, n, startTime)
			}
			break
		}
	}
}

// endsAt starts the hub, ends it at its n-th request, and returns false when there was none.
func endsAt(t *testing.T, to *rest.Config, n int32, elect bool) (reached bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
	defer cancel()
	defer time.AfterFunc(startTime, cancel).Stop()
	left := &atomic.Int32{}
	left.Store(n)
	config := rest.CopyConfig(to)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return ender{next, left, cancel} })
	o := &options{healthAddress: "127.0.0.1:0", workers: 8, leaderElect: elect, namespace: "default"}
	if err := runUntilStopped(ctx, func(ctx context.Context) error { return runHub(ctx, config, o) }); err != nil {
		t.Errorf("at request %d, with leader election %v: got %v, want no error", n, elect, err)
	}
	return left.Load() <= 0
}
