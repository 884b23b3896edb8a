// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/daemon/internal/addresses"
	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
)

// The daemon handles DELs before the API server has answered, but it is not ready for Pods.
func TestHealth(t *testing.T) {
	t.Parallel()
	r := &readiness{allocator: addresses.NewDeferredAllocator(), defaultDelegate: func() error { return nil }}
	handler := app.HealthHandler(r.check)
	expect := func(when string, want map[string]int) {
		t.Helper()
		got := map[string]int{}
		for path := range want {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			got[path] = w.Code
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("status codes %s (-want +got):\n%s", when, diff)
		}
	}
	expect("before the API server answered", map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 404, "/": 404})
	r.ready.Store(true)
	expect("when the daemon is ready", map[string]int{"/healthz": 200, "/readyz": 200})
}

// The daemon is not ready on a node without the CNI configuration that a flag names. Later, the NodeNetwork reports it.
func TestReadinessWithDefaultDelegate(t *testing.T) {
	t.Parallel()
	missing := errors.New("folder must have the file")
	open := addresses.NewDeferredAllocator()
	open.Open(allocator.New(nil, allocator.Config{}))
	defer open.Close()
	r := &readiness{allocator: open, defaultDelegate: func() error { return missing }}
	if err := r.check(t.Context()); !errors.Is(err, missing) {
		t.Errorf("before the installation: got %v, want %v", err, missing)
	}
	r.ready.Store(true)
	if err := r.check(t.Context()); err != nil {
		t.Errorf("after the installation: got %v, want no error", err)
	}
}
