// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/daemon/internal/addresses"
	"github.com/patchbay-cni/patchbay/internal/app"
)

// The daemon handles DELs before the API server has answered, but it is not ready for Pods.
func TestHealth(t *testing.T) {
	t.Parallel()
	r := &readiness{allocator: addresses.NewDeferredAllocator()}
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
