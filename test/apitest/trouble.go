// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Hung is how long a request hangs that a Trouble keeps.
const Hung = 30 * time.Second

const (
	watchLife = time.Second     // of a watch that is cut
	lag       = 2 * time.Second // of a watch that is late
)

// Trouble is one way in which an API server or the network before it fails a client again and
// again.
type Trouble struct {
	// Name says what happens, Reason why a program must bear it.
	Name, Reason string

	every   int64 // of the requests that it concerns, one in so many is hit; 0: all in one of three seconds
	most    int64 // and no more than so many; 0 is without end
	applies func(*http.Request) bool
	meet    meeting
}

// meeting is what becomes of a request that is hit.
type meeting func(next http.RoundTripper, r *http.Request) (*http.Response, error)

// Troubles are all that a client of an API server must bear.
func Troubles() []Trouble {
	return []Trouble{
		{"Conflict", "Another client wrote first: 409, nothing was stored.", 3, 0, isWrite, refuse(conflict)},
		{"Busy", "Priority and fairness refuses for a second: 429.", 0, 0, isShort, refuse(busy)},
		{"Unsent", "The connection broke before the request was sent.", 3, 0, isWrite, lose},
		{"ReplyLost", "The connection broke after the write was stored.", 3, 0, isWrite, after(lose)},
		{"Failed", "500 after the write was stored, as etcd's timeouts make it.", 3, 0, isWrite, after(refuse(failed))},
		{"WriteHangs", "A write is not answered for 30 s, and never sent.", 4, 3, isWrite, hang},
		{"Unread", "500 on reads for a second: etcd has no leader.", 0, 0, isRead, refuse(failed)},
		{"ReadHangs", "A read is not answered for 30 s.", 8, 3, isRead, hang},
		{"WatchCut", "Watches close after a second, as behind a balancer.", 1, 0, isWatch, cutShort},
		{"WatchLate", "Watches are late: a cache serves an older state.", 1, 0, isWatch, delay(lag)},
	}
}

// Behind is the trouble that caches of one resource lag behind all others.
func Behind(resource string, lag time.Duration) Trouble {
	return Trouble{
		"Behind", "A cache serves an older state than others do.", 1, 0,
		func(r *http.Request) bool { return isWatch(r) && strings.HasSuffix(r.URL.Path, "/"+resource) }, delay(lag),
	}
}

// Meet returns a client configuration like config, whose requests meet the trouble.
func (t Trouble) Meet(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	count := &atomic.Int64{} // of the requests that it concerns
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if !t.applies(r) || !t.hits(count.Add(1)) {
				return next.RoundTrip(r)
			}
			return t.meet(next, r)
		})
	})
	return config
}

// hits tells whether the nth request is hit.
func (t Trouble) hits(n int64) bool {
	if t.every == 0 {
		return time.Now().Unix()%3 == 0
	}
	return n%t.every == 0 && (t.most == 0 || n/t.every <= t.most)
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

func isShort(r *http.Request) bool { return !isWatch(r) }

func isWrite(r *http.Request) bool { return r.Method != http.MethodGet }

func isRead(r *http.Request) bool { return r.Method == http.MethodGet && !isWatch(r) }

func conflict() *apierrors.StatusError {
	return apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, "object", errors.New("another client wrote first"))
}

func busy() *apierrors.StatusError { return apierrors.NewTooManyRequests("too many requests", 1) }

func failed() *apierrors.StatusError {
	return apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
}

// refuse answers in the place of the API server.
func refuse(status func() *apierrors.StatusError) meeting {
	return func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
		drop(r)
		refusal := status().ErrStatus
		refusal.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		raw, err := json.Marshal(refusal)
		if err != nil {
			return nil, fmt.Errorf("write status: %w", err)
		}
		reply := &http.Response{
			Status: http.StatusText(int(refusal.Code)), StatusCode: int(refusal.Code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(raw)),
			ContentLength: int64(len(raw)), Request: r,
		}
		if refusal.Details != nil && refusal.Details.RetryAfterSeconds > 0 {
			reply.Header.Set("Retry-After", fmt.Sprint(refusal.Details.RetryAfterSeconds))
		}
		return reply, nil
	}
}

// lose breaks the connection.
func lose(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
	drop(r)
	return nil, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, ErrLost)
}

// hang keeps the request, and loses it then.
func hang(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	select {
	case <-r.Context().Done():
		drop(r)
		return nil, r.Context().Err()
	case <-time.After(Hung):
		return lose(next, r)
	}
}

// after lets the API server do what is asked, and answers otherwise.
func after(answer meeting) meeting {
	return func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		reply, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		// Read to the end, so that the API server is through with it for certain.
		_, err = io.Copy(io.Discard, reply.Body)
		if err := errors.Join(err, reply.Body.Close()); err != nil {
			return nil, err
		}
		return answer(next, r)
	}
}

// drop closes the body of a request that is not sent, as a RoundTripper must; twice does no harm.
func drop(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// cutShort ends a watch after its life.
func cutShort(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	reply, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body := reply.Body
	reply.Body = &shortBody{body, time.AfterFunc(watchLife, func() { _ = body.Close() })}
	return reply, nil
}

// shortBody ends when its timer closes it.
type shortBody struct {
	io.ReadCloser
	timer *time.Timer
}

// Read implements io.Reader. An API server that ends a watch ends its body.
func (b *shortBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		err = io.EOF
	}
	return n, err
}

// Close implements io.Closer.
func (b *shortBody) Close() error {
	b.timer.Stop()
	return b.ReadCloser.Close()
}

// delay delivers what a watch says after the lag.
func delay(lag time.Duration) meeting {
	return func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		reply, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		reader, writer := io.Pipe()
		chunks := make(chan chunk, 1<<12)
		go receive(reply.Body, chunks)
		go deliver(chunks, writer, lag)
		reply.Body = &lateBody{reader, reply.Body}
		return reply, nil
	}
}

// chunk is a part of a body and when it came.
type chunk struct {
	raw []byte
	at  time.Time
}

// receive reads a body to its end.
func receive(body io.Reader, chunks chan<- chunk) {
	defer close(chunks)
	for {
		raw := make([]byte, 1<<15)
		n, err := body.Read(raw)
		if n > 0 {
			chunks <- chunk{raw[:n], time.Now()}
		}
		if err != nil {
			return
		}
	}
}

// deliver passes chunks on after the lag.
func deliver(chunks <-chan chunk, to *io.PipeWriter, lag time.Duration) {
	for c := range chunks {
		time.Sleep(time.Until(c.at.Add(lag)))
		_, _ = to.Write(c.raw) // to a reader that has closed, nothing is written
	}
	_ = to.Close()
}

// lateBody is read late and closed at once.
type lateBody struct {
	*io.PipeReader
	body io.Closer
}

// Close implements io.Closer.
func (b *lateBody) Close() error {
	return errors.Join(b.PipeReader.Close(), b.body.Close())
}
