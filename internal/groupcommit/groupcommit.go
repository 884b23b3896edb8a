// SPDX-License-Identifier: Apache-2.0

// Package groupcommit combines all waiting requests for an object into one write.
//
// A Queue has the requests for one object. While there is work, one goroutine, the writer, calls
// Config.Commit: it reads the object, decides all pending requests, writes, and answers them. After a
// conflict with another writer, and after a failure, the Queue waits for a random time with a bound
// that doubles (full jitter) and calls it again. After too many failures in a row, all requests get
// the error.
package groupcommit

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Policy is a retry policy.
type Policy struct {
	// IsConflict reports whether another writer changed the object first, so that nothing
	// was written. Any other error counts as a failure.
	IsConflict func(error) bool
	// MinBackoff is the minimum of the first bound of a random wait; MaxBackoff limits all bounds.
	MinBackoff, MaxBackoff time.Duration
	// Spread times the duration of the attempt is the first bound after a conflict, if that is
	// more than MinBackoff: attempts are slower with more writers, which then spread out over a
	// longer time. 1 when zero.
	Spread int
	// ConstantRetries is the number of conflicts in a row that do not double the bound.
	ConstantRetries int
	// MaxFailures is how many attempts in a row may fail.
	MaxFailures int
	// Rand returns a number in [0,1); math/rand when nil.
	Rand func() float64
}

// Jitter returns a random time below a bound that is first, doubles with each try, and is
// at most limit.
func (p Policy) Jitter(first, limit time.Duration, try int) time.Duration {
	random := p.Rand
	if random == nil {
		random = rand.Float64
	}
	return time.Duration(random() * float64(min(first<<min(try, 20), limit)))
}

// BackOff waits after a conflict, or until ctx ends. took is the duration of the attempt and
// conflicts the number of conflicts in a row before this one.
func (p Policy) BackOff(ctx context.Context, took time.Duration, conflicts int) {
	first := max(p.MinBackoff, time.Duration(max(p.Spread, 1))*took)
	Sleep(ctx, p.Jitter(first, p.MaxBackoff, max(conflicts-p.ConstantRetries, 0)))
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Config configures a Queue. Policy.IsConflict and Commit are required.
type Config struct {
	Policy

	// Commit makes one attempt. It gets the requests from Queue.Pending and answers those that
	// it has served; the others stay. One goroutine calls it, as long as requests are left or
	// a commit is due.
	Commit func(ctx context.Context) error
	// Idle, which may be nil, is called when the writer stops because nothing is left.
	Idle func()
	// FailureError returns the error for all requests after too many failures, from the last
	// failure. If nil, they get that failure.
	FailureError func(err error) error
	// Failed, which may be nil, is called when the writer stops after too many failures. due
	// means that a commit is still due, which the Queue does not retry.
	Failed func(due bool)
	// Go starts the writer; nil starts a goroutine.
	Go func(func())
}

// Request is one value in a Queue. Commit may write answers into the value before it calls
// Answer.
type Request[T any] struct {
	// Value is the content of the request.
	Value T

	state atomic.Int32
	done  chan struct{}
	err   error
}

// The states of a request. The caller withdraws it, or the writer accepts it, whichever comes first.
const (
	waiting = iota
	withdrawn
	accepted
)

// Accept reports whether the caller still waits. If it does, the writer must answer, and the caller
// can no longer withdraw the request.
func (r *Request[T]) Accept() bool {
	return r.state.CompareAndSwap(waiting, accepted) || r.state.Load() == accepted
}

// Answer answers the request. It does nothing for a request that was withdrawn or answered.
func (r *Request[T]) Answer(err error) {
	if !r.Accept() || r.answered() {
		return
	}
	r.err = err
	close(r.done)
}

func (r *Request[T]) answered() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Err returns the answer, after Queue.Wait has reported that there is one.
func (r *Request[T]) Err() error { return r.err }

// Queue has the requests for one object. Its methods may be called from any goroutine.
type Queue[T any] struct {
	ctx context.Context
	cfg Config

	mu       sync.Mutex
	requests []*Request[T]
	// running means that there is a writer.
	running bool
	// due means that a commit is needed although no request waits. taken means that Pending
	// has cleared due for the current attempt.
	due, taken bool
}

// New returns a Queue that works until ctx ends.
func New[T any](ctx context.Context, cfg Config) *Queue[T] {
	if cfg.Go == nil {
		cfg.Go = func(f func()) { go f() }
	}
	if cfg.FailureError == nil {
		cfg.FailureError = func(err error) error { return err }
	}
	return &Queue[T]{ctx: ctx, cfg: cfg}
}

// Add queues a request. Its caller must call Wait.
func (q *Queue[T]) Add(value T) *Request[T] {
	r := &Request[T]{Value: value, done: make(chan struct{})}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.requests = append(q.requests, r)
	q.start()
	return r
}

// Trigger makes a commit due, for a change that no caller waits for.
func (q *Queue[T]) Trigger() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.due = true
	q.start()
}

// start starts the writer, unless there is one. The caller holds q.mu.
func (q *Queue[T]) start() {
	if q.running || q.ctx.Err() != nil {
		return
	}
	q.running = true
	q.cfg.Go(q.run)
}

// Pending returns the waiting requests in their order, for the current attempt, which also serves all
// earlier Trigger calls.
func (q *Queue[T]) Pending() []*Request[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken = q.taken || q.due
	q.due = false
	return slices.Clone(q.unanswered())
}

// Waiting returns the waiting requests in their order.
func (q *Queue[T]) Waiting() []*Request[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.unanswered())
}

// unanswered drops the requests that are answered or withdrawn, and returns the others. The
// caller holds q.mu.
func (q *Queue[T]) unanswered() []*Request[T] {
	kept := q.requests[:0]
	for _, r := range q.requests {
		if r.state.Load() != withdrawn && !r.answered() {
			kept = append(kept, r)
		}
	}
	clear(q.requests[len(kept):])
	q.requests = kept
	return kept
}

// Wait waits for the answer to a request and reports whether there is one. If ctx or the
// Queue's context ends first, the request is withdrawn.
func (q *Queue[T]) Wait(ctx context.Context, r *Request[T]) bool {
	select {
	case <-r.done:
		return true
	case <-ctx.Done():
	case <-q.ctx.Done():
	}
	if r.state.CompareAndSwap(waiting, withdrawn) {
		return false
	}
	<-r.done
	return true
}

// run makes attempts until nothing is left to do, or too many have failed.
func (q *Queue[T]) run() {
	conflicts, failures := 0, 0
	for q.continues() {
		if q.ctx.Err() != nil { // also with a store that ignores its context
			q.fail(context.Cause(q.ctx))
			return
		}
		begin := time.Now()
		err := q.cfg.Commit(q.ctx)
		q.finishAttempt(err == nil)
		switch {
		case err == nil:
			conflicts, failures = 0, 0
		case q.cfg.IsConflict(err):
			q.cfg.BackOff(q.ctx, time.Since(begin), conflicts)
			conflicts++
		default:
			if failures++; failures >= q.cfg.MaxFailures {
				q.fail(err)
				return
			}
			Sleep(q.ctx, q.cfg.Jitter(q.cfg.MinBackoff, q.cfg.MaxBackoff, failures+2))
		}
	}
}

// continues reports whether there is work. If not, the writer must stop.
func (q *Queue[T]) continues() bool {
	q.mu.Lock()
	q.running = len(q.unanswered()) > 0 || q.due
	running := q.running
	q.mu.Unlock()
	if !running && q.cfg.Idle != nil {
		q.cfg.Idle()
	}
	return running
}

// finishAttempt makes a commit due again if the attempt that served it failed.
func (q *Queue[T]) finishAttempt(succeeded bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.due = q.due || q.taken && !succeeded
	q.taken = false
}

// fail answers all requests with the error, also those that came during the last attempt, and stops
// the writer.
func (q *Queue[T]) fail(cause error) {
	q.mu.Lock()
	requests, due := q.requests, q.due
	q.requests, q.due, q.running = nil, false, false
	q.mu.Unlock()
	err := q.cfg.FailureError(cause)
	for _, r := range requests {
		r.Answer(err)
	}
	if q.cfg.Failed != nil {
		q.cfg.Failed(due)
	}
}
