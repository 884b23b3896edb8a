// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// A watch ends with its namespace: an agent would else keep one for each namespace that ever
// was, and ask for what it may not see. One whose rights are missing for the moment goes on,
// and a namespace that comes back is watched again. A
// watch outlives the pass that began it.
func TestWatchesEndWithTheirNamespace(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}`))
	}))
	t.Cleanup(api.Close)
	client, err := metadata.NewForConfig(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	var exists atomic.Bool
	exists.Store(true)
	w := newObjectWatcher(client, func(string, metav1.Object) {}, func(context.Context, string) bool { return !exists.Load() })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	pass, endPass := context.WithCancel(ctx)
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	running := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.watches)
	}
	await := func(what string, so func() bool) {
		t.Helper()
		for !so() {
			if ctx.Err() != nil {
				t.Fatalf("waited for %s", what)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	w.ensureWatch(pass, gvr, "team")
	w.ensureWatch(pass, gvr, "") // nothing of the cluster goes with a namespace
	await("both to be refused twice", func() bool { return asked.Load() >= 4 })
	if got := running(); got != 2 {
		t.Errorf("%d watches while the namespace exists, want 2", got)
	}
	exists.Store(false)
	await("the watch to end", func() bool { return running() == 1 })
	exists.Store(true)
	w.ensureWatch(pass, gvr, "team")
	if got := running(); got != 2 {
		t.Errorf("%d watches after the namespace came back, want 2", got)
	}
	before := asked.Load()
	endPass()
	await("the watches to go on after their pass", func() bool { return asked.Load() >= before+2 })
	w.stop()
	w.ensureWatch(ctx, gvr, "other")
	if got := running(); got != 2 {
		t.Errorf("%d watches after the end, want none begun", got)
	}
}
