// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/internal/manager"
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
			go func() { done <- manager.Run(ctx, m) }()
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
