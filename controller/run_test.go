// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// With an API server that never answers no cache is ever filled, and no Lease is got:
// the controller ends all the same when it is asked to.
func TestEndsWithoutAnAPIServer(t *testing.T) {
	t.Parallel()
	for name, elect := range map[string]bool{"one of several": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, over := make(chan struct{}, 1000), make(chan struct{})
			mute := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				asked <- struct{}{}
				select {
				case <-over:
				case <-r.Context().Done():
				}
			}))
			defer mute.Close()
			defer close(over)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			m, err := newManager(ctx, &rest.Config{Host: mute.URL}, &options{namespace: "ns", healthAddress: "127.0.0.1:0", nodeGrace: time.Minute, leaderElect: elect})
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- runManager(ctx, m) }()
			<-asked
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("ended with %v", err)
				}
			case <-time.After(time.Minute):
				t.Error("a minute later it has not ended")
			}
		})
	}
}

// endless is a manager that says what its parts do.
type endless struct {
	manager.Manager

	start func(context.Context) error
}

func (e endless) Start(ctx context.Context) error { return e.start(ctx) }

// What is said once the end was asked for is no failure, unless it is about the end.
func TestServe(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	late := fmt.Errorf("failed waiting for all runnables to end: %w", context.DeadlineExceeded)
	cases := map[string]struct {
		reason     string
		asked      bool
		says, want error
	}{
		"Ended":    {reason: "an orderly end", asked: true},
		"Starting": {reason: "a part that was to end while it started", asked: true, says: broken},
		"Canceled": {reason: "the same, in its words", asked: true, says: context.Canceled},
		"Stuck":    {reason: "a part that does not end is a fault", asked: true, says: late, want: context.DeadlineExceeded},
		"Broken":   {reason: "nobody asked it to end", says: broken, want: broken},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			m := endless{start: func(context.Context) error {
				if tc.asked {
					cancel()
				}
				return tc.says
			}}
			if err := runManager(ctx, m); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}
