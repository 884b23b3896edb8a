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

	"github.com/patchbay-cni/patchbay/internal/manager"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A replica that is asked to stop before any of its requests during the start stops without an
// error.
func TestEndsAtAnyMomentOfTheStart(t *testing.T) {
	env := apitest.Start(t)
	for _, moment := range []int64{never, 0, 1, 2, 3, 5, 8, 13, 21, 34, 55} {
		for _, elect := range []bool{true, false} {
			// The next replica does not wait for the Lease of the last one.
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName}}
			if err := client.IgnoreNotFound(env.Client.Delete(t.Context(), lease)); err != nil {
				t.Fatal(err)
			}
			endAt(t, env, moment, elect)
		}
	}
}

// never is the moment of a replica that is stopped before it is created.
const never = -1

// endAt stops a replica before a request, or when it leads.
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
	o := &options{namespace: namespace, healthAddress: freeAddress(t), webhookAddress: freeAddress(t), nodeGrace: time.Minute, leaderElect: elect}
	m, err := newManager(ctx, cfg, o)
	if err != nil {
		t.Fatalf("asked to end before request %d: %v", moment, err)
	}
	done := make(chan error, 1)
	go func() { done <- manager.Run(ctx, m) }()
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

// before calls a function before each request.
type before struct {
	next http.RoundTripper
	call func()
}

// RoundTrip implements http.RoundTripper.
func (b before) RoundTrip(r *http.Request) (*http.Response, error) {
	b.call()
	return b.next.RoundTrip(r)
}
