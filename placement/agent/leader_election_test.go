// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// fakeLeaseServer is an API server with one Lease.
type fakeLeaseServer struct {
	// onRequest is called before each answer, with the number of earlier requests.
	onRequest func(earlier int)

	mu    sync.Mutex
	count int
	lease *coordinationv1.Lease
}

// RoundTrip implements http.RoundTripper.
func (l *fakeLeaseServer) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onRequest(l.count)
	l.count++
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	code, body := http.StatusOK, any(l.lease)
	switch {
	case r.Body != nil:
		l.lease = &coordinationv1.Lease{}
		if err := json.NewDecoder(r.Body).Decode(l.lease); err != nil {
			return nil, err
		}
		l.lease.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
		body = l.lease
	case l.lease == nil:
		code = http.StatusNotFound
		body = metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
		}
	}
	raw, err := json.Marshal(body)
	return &http.Response{Request: r, StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(raw))}, err
}

// holder returns the identity of the holder of the Lease; "" without one.
func (l *fakeLeaseServer) holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == nil || l.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.lease.Spec.HolderIdentity
}

// lead runs runAsLeader until it returns.
func lead(ctx context.Context, t *testing.T, l *fakeLeaseServer, work func(context.Context) error) error {
	t.Helper()
	local := &rest.Config{Host: "https://cluster.example.com", Transport: l, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	ended := make(chan error, 1)
	go func() { ended <- runAsLeader(ctx, &options{namespace: "own", identity: "one"}, local, work) }()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Minute):
		t.Fatal("runAsLeader did not return within a minute")
		return nil
	}
}

// runAsLeader returns no error when its context ends at any moment, and releases the Lease after work has
// returned.
func TestLeaderStopsAtAnyMoment(t *testing.T) {
	t.Parallel()
	for before := range 4 { // requests; 2 acquire the Lease, and 2 more renew it
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := &fakeLeaseServer{onRequest: func(n int) {
				if n == before {
					cancel()
				}
			}}
			err := lead(ctx, t, l, func(ctx context.Context) error {
				<-ctx.Done()
				if l.holder() != "one" {
					t.Errorf("%q holds the Lease at the end of work", l.holder())
				}
				return nil
			})
			if err != nil || l.holder() != "" {
				t.Errorf("got %v, and %q holds the Lease; want no error and no holder", err, l.holder())
			}
		})
	}
}

// runAsLeader returns the error of work.
func TestLeaderReturnsErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	l := &fakeLeaseServer{onRequest: func(int) {}}
	if err := lead(t.Context(), t, l, func(context.Context) error { return broken }); !errors.Is(err, broken) || l.holder() != "" {
		t.Errorf("got %v, and %q holds the Lease; want the error of work and no holder", err, l.holder())
	}
}
