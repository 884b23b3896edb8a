// SPDX-License-Identifier: Apache-2.0

package objectwatcher

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
)

// A watch ends with its namespace: else an agent would keep one for each namespace that ever existed. A
// watch without rights in an existing namespace goes on, and a namespace that is created again is watched
// again. A watch runs longer than the reconciliation that started it.
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
	w := New(client, func(schema.GroupResource, metav1.Object) {}, func(context.Context, string) bool { return !exists.Load() })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	reconciliation, endReconciliation := context.WithCancel(ctx)
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
	w.EnsureWatch(reconciliation, gvr, "team")
	w.EnsureWatch(reconciliation, gvr, "") // no namespace ends the watch of cluster-scoped objects
	await("both requests to be rejected twice", func() bool { return asked.Load() >= 4 })
	if got := running(); got != 2 {
		t.Errorf("%d watches while the namespace exists, want 2", got)
	}
	exists.Store(false)
	await("the watch to end", func() bool { return running() == 1 })
	exists.Store(true)
	w.EnsureWatch(reconciliation, gvr, "team")
	if got := running(); got != 2 {
		t.Errorf("%d watches after the namespace came back, want 2", got)
	}
	before := asked.Load()
	endReconciliation()
	await("the watches to go on after the reconciliation", func() bool { return asked.Load() >= before+2 })
	w.Stop()
	w.EnsureWatch(ctx, gvr, "other")
	if got := running(); got != 2 {
		t.Errorf("%d watches after the end, want no new one", got)
	}
}

// A watch goes on when a reconciliation uses it while the agent checks its namespace: the namespace exists
// again.
func TestWatchInUseGoesOn(t *testing.T) {
	t.Parallel()
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	key := watchKey{gvr, "team"}
	used, read := true, 0
	objects := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	if err := objects.Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "settings"}}); err != nil {
		t.Fatal(err)
	}
	var w *Watcher
	w = New(nil, func(schema.GroupResource, metav1.Object) { read++ }, func(ctx context.Context, namespace string) bool {
		if used {
			w.EnsureWatch(ctx, gvr, namespace)
		}
		return true
	})
	stopped := false
	w.watches[key] = &activeWatch{cancel: func() { stopped = true }, objects: objects}
	forbidden := apierrors.NewForbidden(gvr.GroupResource(), "", nil)
	w.handleWatchError(t.Context(), key, &toolscache.Reflector{}, forbidden)
	if _, ok := w.watches[key]; !ok || stopped {
		t.Error("the watch was stopped")
	}
	if read != 1 {
		t.Errorf("the object was enqueued %d times, want once for each attempt: it may have changed", read)
	}
	used = false
	w.handleWatchError(t.Context(), key, &toolscache.Reflector{}, forbidden)
	if _, ok := w.watches[key]; ok || !stopped {
		t.Error("the watch of a namespace that is gone was not stopped")
	}
}
