// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package relist_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/patchbay-cni/patchbay/internal/relist"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

// A cache that runs during a restore ends up with the API server's objects: without those created
// after the backup, and with all that are created after the restore.
func TestCacheOutlivesRestore(t *testing.T) {
	t.Parallel()
	log.SetLogger(logr.Discard())
	env := apitest.New(t)
	cfg := rest.CopyConfig(env.Config)
	sent := &sent{}
	cfg.Wrap(sent.record)
	relist.WrapConfig(cfg)
	cached, err := cache.New(cfg, cache.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = cached.Start(t.Context()) }() // it ends with the test
	named := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	}
	create := func(name string) {
		t.Helper()
		eventually(t, "ConfigMap "+name+" is made", func() error { return env.Client.Create(t.Context(), named(name)) })
	}
	find := func(name string) error {
		return cached.Get(t.Context(), client.ObjectKeyFromObject(named(name)), &corev1.ConfigMap{})
	}
	create("old")
	restore := env.Backup(t)
	for n := range 200 { // more versions than the API server writes by itself when it starts
		create(fmt.Sprintf("young-%d", n))
	}
	eventually(t, "the cache has all", func() error { return find("young-199") })
	create("youngest")
	eventually(t, "the cache watches", func() error { return find("youngest") })
	sent.max.Store(0)
	restore()
	create("later")
	eventually(t, "the cache has what came after the restore", func() error { return find("later") })
	later := named("later")
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(later), later); err != nil {
		t.Fatal(err)
	}
	at, err := strconv.ParseUint(later.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if got := sent.max.Load(); got > at {
		t.Errorf("the API server answered a request at resourceVersion %d and is at %d: it sends nothing, or times out", got, at)
	}
	if err := find("young-0"); !apierrors.IsNotFound(err) {
		t.Errorf("what is younger than the backup: got %v from the cache, want NotFound", err)
	}
	if err := find("old"); err != nil {
		t.Errorf("what the backup has: got %v from the cache, want it", err)
	}
}

// sent records the greatest resourceVersion of the answered requests.
type sent struct{ max atomic.Uint64 }

func (s *sent) record(next http.RoundTripper) http.RoundTripper { return recorder{s, next} }

type recorder struct {
	sent *sent
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (r recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := r.next.RoundTrip(request)
	at, parseErr := strconv.ParseUint(request.URL.Query().Get("resourceVersion"), 10, 64)
	if err != nil || parseErr != nil {
		return answer, err
	}
	for old := r.sent.max.Load(); at > old && !r.sent.max.CompareAndSwap(old, at); {
		old = r.sent.max.Load()
	}
	return answer, nil
}

// eventually polls until try succeeds; after two minutes the test fails with the last error.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v (last: %v)", what, err, last)
	}
}
