// SPDX-License-Identifier: Apache-2.0

package works

import (
	"net/http"
	"sync"
	"time"
)

const (
	// maxWatchFailure is how long a watch that fails delays the date of all reports. One that fails for longer has a
	// cause of its own, such as the conversion webhook of its kind.
	maxWatchFailure = 2 * time.Minute
	// catchUpTime is how long a watch that has failed may take to send what it has missed.
	catchUpTime = 2 * time.Second
)

// watchHealth observes the watches of a client.
type watchHealth struct {
	now func() time.Time

	mu        sync.Mutex
	failing   map[string]*failingWatch // by path
	recovered time.Time                // when the last watch that had failed worked again
}

// failingWatch is a watch that the API server has not accepted yet.
type failingWatch struct {
	since time.Time
	// rejected is true after the first answer.
	rejected bool
}

func newWatchHealth(now func() time.Time) *watchHealth {
	return &watchHealth{now: now, failing: map[string]*failingWatch{}}
}

// observe returns a transport that records in h which of its watches fail.
func (h *watchHealth) observe(next http.RoundTripper) http.RoundTripper {
	return watchTransport{health: h, next: next}
}

// watchTransport is the round tripper of a watchHealth.
type watchTransport struct {
	health *watchHealth
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t watchTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !r.URL.Query().Has("watch") {
		return t.next.RoundTrip(r)
	}
	t.health.begin(r.URL.Path)
	answer, err := t.next.RoundTrip(r)
	t.health.end(r.URL.Path, err == nil && !isUnavailable(answer.StatusCode))
	return answer, err
}

// isUnavailable tells whether an API server may accept the same watch later. Else the agent has no such watch: its
// right, or the kind, is gone.
func isUnavailable(code int) bool {
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusGone
}

// CloseIdleConnections implements what http.Client.CloseIdleConnections calls.
func (t watchTransport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (h *watchHealth) begin(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failing[path] == nil {
		h.failing[path] = &failingWatch{since: h.now()}
	}
}

func (h *watchHealth) end(path string, accepted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.failing[path]
	switch {
	case w == nil:
	case !accepted:
		w.rejected = true
	default:
		if delete(h.failing, path); w.rejected {
			h.recovered = h.now()
		}
	}
}

// isComplete tells whether all watches have sent what has changed, apart from those that fail for long.
func (h *watchHealth) isComplete() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.failing {
		if h.now().Sub(w.since) < maxWatchFailure {
			return false
		}
	}
	return h.now().Sub(h.recovered) >= catchUpTime
}
