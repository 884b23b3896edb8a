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

// With an API server that never answers, no cache is filled and no Lease acquired. The controller
// must stop all the same.
func TestEndsWithoutAnAPIServer(t *testing.T) {
	t.Parallel()
	for name, elect := range map[string]bool{"with leader election": true, "without": false} {
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

// fakeManager is a manager whose Start is a function of the test.
type fakeManager struct {
	manager.Manager

	start func(context.Context) error
}

func (m fakeManager) Start(ctx context.Context) error { return m.start(ctx) }

// After the program was asked to stop, an error of the manager is no failure, unless a part did not
// stop in time.
func TestRunManager(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	late := fmt.Errorf("failed waiting for all runnables to end: %w", context.DeadlineExceeded)
	cases := map[string]struct {
		reason    string
		stopped   bool
		err, want error
	}{
		"Stopped":  {reason: "The manager stops in order.", stopped: true},
		"Starting": {reason: "A part was stopped while it started.", stopped: true, err: broken},
		"Canceled": {reason: "A part returns the context's error.", stopped: true, err: context.Canceled},
		"Stuck":    {reason: "A part that does not stop is a failure.", stopped: true, err: late, want: context.DeadlineExceeded},
		"Broken":   {reason: "The program was not asked to stop.", err: broken, want: broken},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			m := fakeManager{start: func(context.Context) error {
				if tc.stopped {
					cancel()
				}
				return tc.err
			}}
			if err := runManager(ctx, m); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}
