// SPDX-License-Identifier: Apache-2.0

package kubeclient

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
)

const (
	// MinBackoff is the delay before the first retry of a key; each further retry doubles it.
	MinBackoff = 50 * time.Millisecond
	// maxBackoff is the longest delay between two retries of a key.
	maxBackoff = 15 * time.Second
)

// NewQueue returns a work queue with back-off per key. A key that is queued several times
// is processed once, and never by two workers at a time.
func NewQueue[K comparable]() workqueue.TypedRateLimitingInterface[K] {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](MinBackoff, maxBackoff))
}

// RunWorkers processes keys until ctx ends. It queues a key again with back-off when process
// fails.
func RunWorkers[K comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[K], workers int, process func(context.Context, K) error) {
	defer context.AfterFunc(ctx, queue.ShutDown)()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for processNext(ctx, queue, process) {
			}
		})
	}
	wg.Wait()
}

// processNext processes one key. It returns false when the queue is shut down.
func processNext[K comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[K], process func(context.Context, K) error) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	err := process(ctx, key)
	if err == nil {
		queue.Forget(key)
		return true
	}
	if ctx.Err() == nil {
		logr.FromContextOrDiscard(ctx).Info("Will retry", "key", key, "attempt", queue.NumRequeues(key)+1, "error", err.Error())
	}
	queue.AddRateLimited(key)
	return true
}

// RetryUntilSuccess calls do with back-off until it succeeds or ctx ends. It returns the
// error of ctx.
func RetryUntilSuccess(ctx context.Context, do func(context.Context) error) error {
	for delay := MinBackoff; ; delay = min(2*delay, maxBackoff) {
		err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		logr.FromContextOrDiscard(ctx).Info("Will retry", "after", delay.String(), "error", err.Error())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
	}
}
