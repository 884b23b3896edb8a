// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package debugapi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// What the tunnel allows at a time: 25 streams of a user in a cluster, and 100 of all.
const (
	maxUsers       = 4
	maxUserStreams = 25
)

// followLog follows the log of the Pod.
const followLog = inWeb + "/api/v1/namespaces/web/pods/pod/log?follow=true"

// All streams that a tunnel may have are open when its connection is cut, or hangs: they end, the agent attaches again by
// itself, and there is room for as many.
func (w *world) testFaults(t *testing.T) {
	t.Helper()
	for i := range maxUsers {
		user := fmt.Sprint("user-", i)
		if err := errors.Join(w.hub.Create(t.Context(), binding("web", user, "patchbay-debug", user)),
			w.cluster.Create(t.Context(), binding("web", user, "cluster-admin", "patchbay:"+user))); err != nil {
			t.Fatal(err)
		}
	}
	before := runtime.NumGoroutine() // hub and agent run in this process
	for _, fault := range []struct {
		reason string
		inject func()
		within time.Duration
	}{
		{"the connection is cut", w.link.Cut, waitTimeout},
		{"the connection hangs", w.link.Freeze, waitTimeout},
	} {
		streams := w.fillTunnel(t)
		if err := w.get(t, "ann", inWeb+"/version"); err == nil || !strings.Contains(err.Error(), "429") {
			t.Errorf("one more than %d streams: got %v, want 429", len(streams), err)
		}
		fault.inject()
		began := time.Now()
		for _, s := range streams {
			_, _ = io.Copy(io.Discard, s) // ends
			_ = s.Close()
		}
		if took := time.Since(began); took > fault.within {
			t.Errorf("%s: streams ended after %v, want at most %v", fault.reason, took, fault.within)
		}
		if out, err := w.plugin(t, "ann", "get", "pods", "configmap/placed"); err == nil || !strings.Contains(err.Error(), "the hub does not reach it") {
			t.Errorf("%s: get pods: got %v, %s", fault.reason, err, out)
		}
		w.link.Heal()
	}
	all := w.fillTunnel(t)
	for _, s := range all {
		_ = s.Close()
	}
	eventually(t, "no goroutines are left of streams", func() error {
		// Clients keep some connections for later requests.
		if now := runtime.NumGoroutine(); now > before+len(all) {
			return fmt.Errorf("there are %d, and there were %d before %d streams", now, before, 3*len(all))
		}
		return nil
	})
}

// fillTunnel waits until the agent is attached, and opens all streams that it may have.
func (w *world) fillTunnel(t *testing.T) []io.ReadCloser {
	t.Helper()
	var streams []io.ReadCloser
	for i := range maxUsers {
		for range maxUserStreams {
			eventually(t, "one more stream", func() error {
				s, err := w.do(t, fmt.Sprint("user-", i), http.MethodGet, followLog, nil)
				if err != nil {
					return err
				}
				if line, err := bufio.NewReader(s.Body).ReadString('\n'); err != nil || line != "a line\n" {
					_ = s.Body.Close()
					return fmt.Errorf("got %s: %q, %w", s.Status, line, errors.Join(err, errors.New("no line")))
				}
				streams = append(streams, s.Body)
				return nil
			})
		}
	}
	return streams
}

// An agent whose connection is cut again and again while it attaches attaches at last, once.
func (w *world) testCutWhileAttaching(t *testing.T) {
	t.Helper()
	for range 5 {
		w.link.Cut()
		before := w.link.Connections()
		w.link.Heal()
		eventually(t, "the agent connects", func() error {
			if w.link.Connections() == before {
				return errors.New("it does not yet")
			}
			return nil
		})
	}
	eventually(t, "the agent is attached", func() error { return w.get(t, "ann", inWeb+"/version") })
	var all sync.WaitGroup
	for range 10 { // each at any of its connections
		all.Go(func() {
			if err := w.get(t, "ann", inWeb+"/version"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
