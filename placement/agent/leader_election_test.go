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

// locker is an API server that keeps one Lease.
type locker struct {
	// note hears of each request before it is answered: how many there were before it.
	note func(before int)

	mu    sync.Mutex
	asked int
	lease *coordinationv1.Lease
}

// RoundTrip implements http.RoundTripper.
func (l *locker) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(l.asked)
	l.asked++
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

// holder is who has the Lease.
func (l *locker) holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == nil || l.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.lease.Spec.HolderIdentity
}

// leads leads until it ends, and answers what with.
func leads(ctx context.Context, t *testing.T, l *locker, work func(context.Context) error) error {
	t.Helper()
	local := &rest.Config{Host: "https://cluster.example.com", Transport: l, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	ended := make(chan error, 1)
	go func() { ended <- runAsLeader(ctx, &options{namespace: "own", identity: "one"}, local, work) }()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Minute):
		t.Fatal("it has not ended")
		return nil
	}
}

// An agent that is told to end ends without an error, whatever it is about, and has the
// Lease until its work has ended, and not longer.
func TestLeadEndsAtAnyMoment(t *testing.T) {
	t.Parallel()
	for before := range 4 { // requests; the Lease is had after 2, and renewed by 2 more
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := &locker{note: func(n int) {
				if n == before {
					cancel()
				}
			}}
			err := leads(ctx, t, l, func(ctx context.Context) error {
				<-ctx.Done()
				if l.holder() != "one" {
					t.Errorf("at the end of the work %q holds the Lease", l.holder())
				}
				return nil
			})
			if err != nil || l.holder() != "" {
				t.Errorf("got %v, and %q holds the Lease; want no error: it ended on request", err, l.holder())
			}
		})
	}
}

// What the work fails with is what the agent fails with.
func TestLeadFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	l := &locker{note: func(int) {}}
	if err := leads(t.Context(), t, l, func(context.Context) error { return broken }); !errors.Is(err, broken) || l.holder() != "" {
		t.Errorf("got %v, and %q holds the Lease; want that it is broken", err, l.holder())
	}
}
