// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

// Whenever a replica is asked to end while it starts, before any of its requests, it ends,
// and without an error.
func TestEndsAtAnyMomentOfTheStart(t *testing.T) {
	env := apitest.Start(t)
	for _, moment := range []int64{never, 0, 1, 2, 3, 5, 8, 13, 21, 34, 55} {
		for _, elect := range []bool{true, false} {
			// Nobody holds what the last one held: who was asked to end does not wait for it.
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName}}
			if err := client.IgnoreNotFound(env.Client.Delete(t.Context(), lease)); err != nil {
				t.Fatal(err)
			}
			endAt(t, env, moment, elect)
		}
	}
}

// never is the moment of who is asked to end before anything is made.
const never = -1

// endAt ends a replica before a request is made, or when it leads.
func endAt(t *testing.T, env *apitest.Env, moment int64, elect bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
	defer cancel()
	if moment == never {
		cancel()
	}
	var count atomic.Int64
	cfg := rest.CopyConfig(env.ConfigAs(apitest.Controller()))
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return before{next, func() {
			if count.Add(1) > moment {
				cancel()
			}
		}}
	})
	o := &options{namespace: namespace, healthAddress: free(t), webhookAddress: free(t), nodeGrace: time.Minute, leaderElect: elect}
	m, err := newManager(ctx, cfg, o)
	if err != nil {
		t.Fatalf("asked to end before request %d: %v", moment, err)
	}
	done := make(chan error, 1)
	go func() { done <- runManager(ctx, m) }()
	select {
	case err := <-done:
		done <- err
	case <-m.Elected():
		cancel()
	case <-time.After(time.Minute):
		t.Fatalf("before request %d: a minute later it neither leads nor was it asked to end", moment)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("asked to end before request %d: %v", moment, err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("asked to end before request %d: a minute later it has not ended", moment)
	}
}

// before is told of each request.
type before struct {
	next http.RoundTripper
	tell func()
}

// RoundTrip implements http.RoundTripper.
func (b before) RoundTrip(r *http.Request) (*http.Response, error) {
	b.tell()
	return b.next.RoundTrip(r)
}
