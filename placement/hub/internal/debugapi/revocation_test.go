// SPDX-License-Identifier: Apache-2.0

package debugapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/patchbay-cni/patchbay/placement/internal/tunnel"
)

// agentUser is the name of the agent of east.
const agentUser = "system:serviceaccount:cluster-east:agent"

// revocable is a hub at which the rights of users can be taken away, with an agent of east that answers each request
// with a line, and then nothing until the request ends.
type revocable struct {
	*testServer

	mu      sync.Mutex
	revoked string         // user without rights
	asked   map[string]int // reviews by user
	ended   chan struct{}
	log     strings.Builder
}

func newRevocable(t *testing.T) *revocable {
	t.Helper()
	ca := newAuthority(t)
	r := &revocable{ended: make(chan struct{}), asked: map[string]int{}}
	r.testServer = newTestServer(t, ca, func(spec authorizationv1.SubjectAccessReviewSpec) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked[spec.User]++
		return spec.User != r.revoked
	})
	r.handler.reviewInterval = 10 * time.Millisecond
	r.handler.access.reviewer.allowed = cache.NewLRUExpireCacheWithClock(1, &hastyClock{})
	logged := r.Config.Handler
	r.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		logged.ServeHTTP(w, request.WithContext(logr.NewContext(request.Context(), funcr.New(func(_, args string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.log.WriteString(args + "\n")
		}, funcr.Options{}))))
	})
	response, err := r.do(t, &r.client, "POST", root+"/clusters/east/attach", http.Header{
		"X-Remote-User": {agentUser}, "Connection": {"Upgrade"}, "Upgrade": {tunnel.Protocol},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	conn, ok := response.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatalf("got %s", response.Status)
	}
	go func() {
		defer close(r.ended)
		_ = tunnel.Serve(context.WithoutCancel(t.Context()), conn, http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			_, _ = fmt.Fprintln(w, "a line")
			_ = http.NewResponseController(w).Flush()
			<-request.Context().Done()
		}))
	}()
	for open := false; !open; <-time.After(time.Millisecond) { // the hub stores the connection after its answer
		_, open = r.handler.sessions.get("east", "1")
	}
	return r
}

// hastyClock is an hour later whenever it is read, so that no answer is cached.
type hastyClock struct {
	mu  sync.Mutex
	now time.Time
}

// Now implements cache.Clock.
func (c *hastyClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Hour)
	return c.now
}

func (r *revocable) revoke(user string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.revoked = user
}

func (r *revocable) askedOf(user string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[user]
}

func (r *revocable) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// follow opens a stream, and returns a channel that is closed at its end.
func (r *revocable) follow(t *testing.T, user string) <-chan struct{} {
	t.Helper()
	response, err := r.do(t, &r.client, "GET", root+"/clusters/east/proxy/api/v1/namespaces/web/pods/a/log?follow=true", http.Header{"X-Remote-User": {user}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	line := make([]byte, len("a line\n"))
	if _, err := io.ReadFull(response.Body, line); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: got %s %q, %v", user, response.Status, line, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, response.Body)
	}()
	return ended
}

// The stream of a user ends when RBAC does not allow it any more, those of others go on, and its line is in the log
// while it is open.
func TestRevokedUser(t *testing.T) {
	t.Parallel()
	r := newRevocable(t)
	ann, bob := r.follow(t, "ann"), r.follow(t, "bob")
	if log := r.logged(); !strings.Contains(log, `"Began a debug request"`) || !strings.Contains(log, `"user"="ann"`) {
		t.Errorf("got %s", log)
	}
	r.revoke("ann")
	<-ann
	for before := r.askedOf("bob"); r.askedOf("bob") < before+2; {
		<-time.After(time.Millisecond)
	}
	select {
	case <-bob:
		t.Error("bob has rights: the stream must stay open")
	case <-r.ended:
		t.Error("the agent has rights: its connection must stay open")
	default:
	}
}

// The connection of an agent ends when RBAC does not allow it any more, as after the theft of its credential.
func TestRevokedAgent(t *testing.T) {
	t.Parallel()
	r := newRevocable(t)
	ann := r.follow(t, "ann")
	r.revoke(agentUser)
	<-r.ended
	<-ann
}

// An API server that does not answer takes no rights away.
func TestWaitRevoked(t *testing.T) {
	t.Parallel()
	h, asked := &handler{reviewInterval: time.Millisecond}, 0
	h.waitRevoked(t.Context(), func(context.Context) error {
		switch asked++; asked {
		case 1:
			return nil
		case 2:
			return errors.New("unreachable")
		}
		return apierrors.NewForbidden(resource("clusters/proxy"), "east", nil)
	})
	if asked != 3 {
		t.Errorf("got %d reviews, want the third to end it", asked)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	(&handler{reviewInterval: time.Hour}).waitRevoked(ctx, nil)
}
