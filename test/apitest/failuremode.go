// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// HangDuration is how long a request hangs that a Trouble keeps.
const HangDuration = 30 * time.Second

const (
	watchLifetime = time.Second     // of a watch that is cut
	watchLag      = 2 * time.Second // of a watch that is late
)

// FailureMode is one way in which an API server or the network before it fails a client again and
// again.
type FailureMode struct {
	// Name says what happens, Reason why a program must bear it.
	Name, Reason string

	// Of the requests that it concerns, the first and each so many after it are hit. 0: the first of
	// each subject, and all of a second, every three seconds.
	everyNth int
	maxHits  int // and no more than so many; 0 is without end
	matches  func(*http.Request) bool
	respond  responder
}

// responder is what becomes of a request that is hit.
type responder func(next http.RoundTripper, r *http.Request) (*http.Response, error)

// FailureModes are all that a client of an API server must bear.
func FailureModes() []FailureMode {
	return []FailureMode{
		{"Conflict", "Another client wrote first: 409, nothing was stored.", 3, 0, isWrite, respondWithStatus(conflict)},
		{"Busy", "Priority and fairness refuses for a second: 429.", 0, 0, isNotWatch, respondWithStatus(tooManyRequests)},
		{"Unsent", "The connection broke before the request was sent.", 3, 0, isWrite, dropConnection},
		{"ReplyLost", "The connection broke after the write was stored.", 3, 0, isWrite, afterServing(dropConnection)},
		{"Failed", "500 after the write was stored, as etcd's timeouts make it.", 3, 0, isWrite, afterServing(respondWithStatus(etcdTimeout))},
		{"WriteHangs", "A write is not answered for 30 s, and never sent.", 4, 1, isWrite, hangRequest},
		{"Unread", "500 on reads for a second: etcd has no leader.", 0, 0, isRead, respondWithStatus(etcdTimeout)},
		{"ReadHangs", "A read is not answered for 30 s.", 8, 1, isRead, hangRequest},
		{"WatchCut", "Watches close after a second, as behind a balancer.", 1, 0, isWatch, endWatchEarly},
		{"WatchLate", "Watches are late: a cache serves an older state.", 1, 0, isWatch, delayWatch(watchLag)},
	}
}

// LaggingCache is the trouble that caches of one resource lag behind all others.
func LaggingCache(resource string, lag time.Duration) FailureMode {
	return FailureMode{
		"Behind " + resource, "A cache serves an older state than others do.", 1, 0,
		func(r *http.Request) bool {
			_, of := RequestResource(r)
			return isWatch(r) && of == resource
		}, delayWatch(lag),
	}
}

// RequestResource is what a request to an API server is for; the namespace is empty when it is for all of
// them.
func RequestResource(r *http.Request) (namespace, resource string) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return "", ""
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		return parts[1], parts[2]
	}
	return "", parts[0]
}

// Inject returns a client configuration like config, whose requests meet the trouble.
func (t FailureMode) Inject(config *rest.Config) *rest.Config {
	config, _ = t.InjectPerSubject(config, func(*http.Request) string { return "" })
	return config
}

// InjectPerSubject is like Meet, and counts the requests for each subject by themselves: a trouble that
// hits one in so many would else hit what a program does first, or most often, and nothing else.
func (t FailureMode) InjectPerSubject(config *rest.Config, subject func(*http.Request) string) (*rest.Config, *HitCounter) {
	config = rest.CopyConfig(config)
	tally := &HitCounter{counts: map[string]*requestCount{}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if !t.matches(r) || !tally.countRequest(t, subject(r), r.Method) {
				return next.RoundTrip(r)
			}
			return t.respond(next, r)
		})
	})
	return config, tally
}

// HitCounter counts the requests that a Trouble concerns and hits.
type HitCounter struct {
	mu     sync.Mutex
	counts map[string]*requestCount
	began  time.Time // of the first outage
}

// requestCount is of requests for one subject.
type requestCount struct {
	total, hits int
}

// Hits are how many requests were hit. One is named by its subject and method, as "pods POST"; of
// a trouble that hits no more than so many by its subject alone, as "pods".
func (s *HitCounter) Hits(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.counts[name]; c != nil {
		return c.hits
	}
	return 0
}

// String lists all counts.
func (s *HitCounter) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, name := range slices.Sorted(maps.Keys(s.counts)) {
		list = append(list, fmt.Sprintf("%s: %d of %d", name, s.counts[name].hits, s.counts[name].total))
	}
	return strings.Join(list, ", ")
}

// countRequest counts a request and tells whether it is hit.
func (s *HitCounter) countRequest(t FailureMode, subject, method string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := subject
	if t.maxHits == 0 { // a create and an update fail in different ways
		name += " " + method
	}
	c := s.counts[name]
	if c == nil {
		c = &requestCount{}
		s.counts[name] = c
	}
	hit := s.hitsNext(t, c)
	if c.total++; hit {
		c.hits++
	}
	return hit
}

// hitsNext tells whether the next request for a subject is hit.
func (s *HitCounter) hitsNext(t FailureMode, c *requestCount) bool {
	if t.everyNth > 0 {
		return c.total%t.everyNth == 0 && (t.maxHits == 0 || c.hits < t.maxHits)
	}
	return s.outage() || c.total == 0
}

// outage tells whether all requests are hit now. By the clock: an outage that began with a request
// would hit each of a client that backs off. And one clock for all subjects: with outages of their own,
// a client that needs three answers for a step might never get all three.
func (s *HitCounter) outage() bool {
	if s.began.IsZero() {
		s.began = time.Now()
	}
	return time.Since(s.began)%(3*time.Second) < time.Second
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

func isNotWatch(r *http.Request) bool { return !isWatch(r) }

func isWrite(r *http.Request) bool { return r.Method != http.MethodGet }

func isRead(r *http.Request) bool { return r.Method == http.MethodGet && !isWatch(r) }

func conflict() *apierrors.StatusError {
	return apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, "object", errors.New("another client wrote first"))
}

func tooManyRequests() *apierrors.StatusError {
	return apierrors.NewTooManyRequests("too many requests", 1)
}

func etcdTimeout() *apierrors.StatusError {
	return apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
}

// respondWithStatus answers in the place of the API server.
func respondWithStatus(status func() *apierrors.StatusError) responder {
	return func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
		closeRequestBody(r)
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

// dropConnection breaks the connection.
func dropConnection(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
	closeRequestBody(r)
	return nil, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, ErrLost)
}

// hangRequest keeps the request, and loses it then.
func hangRequest(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	select {
	case <-r.Context().Done():
		closeRequestBody(r)
		return nil, r.Context().Err()
	case <-time.After(HangDuration):
		return dropConnection(next, r)
	}
}

// afterServing lets the API server do what is asked, and answers otherwise.
func afterServing(answer responder) responder {
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

// closeRequestBody closes the body of a request that is not sent, as a RoundTripper must; twice does no harm.
func closeRequestBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// endWatchEarly ends a watch after its life.
func endWatchEarly(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	reply, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body := reply.Body
	reply.Body = &timedBody{body, time.AfterFunc(watchLifetime, func() { _ = body.Close() })}
	return reply, nil
}

// timedBody ends when its timer closes it.
type timedBody struct {
	io.ReadCloser
	timer *time.Timer
}

// Read implements io.Reader. An API server that ends a watch ends its body.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		err = io.EOF
	}
	return n, err
}

// Close implements io.Closer.
func (b *timedBody) Close() error {
	b.timer.Stop()
	return b.ReadCloser.Close()
}

// delayWatch delivers what a watch says after the lag.
func delayWatch(lag time.Duration) responder {
	return func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		reply, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		reader, writer := io.Pipe()
		chunks := make(chan chunk, 1<<12)
		go receive(reply.Body, chunks)
		go deliver(chunks, writer, lag)
		reply.Body = &delayedBody{reader, reply.Body}
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

// delayedBody is read late and closed at once.
type delayedBody struct {
	*io.PipeReader
	body io.Closer
}

// Close implements io.Closer.
func (b *delayedBody) Close() error {
	return errors.Join(b.PipeReader.Close(), b.body.Close())
}
