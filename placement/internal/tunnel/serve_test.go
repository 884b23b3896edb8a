// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// ForwardUpgrade does not return before its last write has returned: HTTP/2 uses the writer for another stream then,
// and the bytes would reach another user.
func TestForwardUpgradeWaitsForWrites(t *testing.T) {
	t.Parallel()
	w := &stuckWriter{ResponseRecorder: httptest.NewRecorder(), writing: make(chan struct{}), deadline: make(chan struct{})}
	near, far := net.Pipe()
	go func() { _, _ = io.WriteString(far, "bytes") }()
	defer far.Close()
	stream := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/upgrade", endsAfter(w.writing))
	stream.Header.Set(UpgradeHeader, "websocket")
	out := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/upgrade", http.NoBody)
	err := ForwardUpgrade(w, stream, out, roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: http.Header{"Upgrade": {"websocket"}}, Body: near}, nil
	}))
	if err != nil || !w.returned.Load() {
		t.Errorf("got %v; the write has returned: %t", err, w.returned.Load())
	}
}

// stuckWriter writes when a deadline ends it.
type stuckWriter struct {
	*httptest.ResponseRecorder

	writing, deadline chan struct{}
	returned          atomic.Bool
}

// Write implements http.ResponseWriter.
func (w *stuckWriter) Write(p []byte) (int, error) {
	close(w.writing)
	<-w.deadline
	w.returned.Store(true)
	return len(p), nil
}

// SetReadDeadline is for http.ResponseController.
func (*stuckWriter) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is for http.ResponseController.
func (w *stuckWriter) SetWriteDeadline(time.Time) error {
	close(w.deadline)
	return nil
}

// endsAfter is a reader that ends when a channel is closed.
type endsAfter <-chan struct{}

// Read implements io.Reader.
func (r endsAfter) Read([]byte) (int, error) {
	<-r
	return 0, io.EOF
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
