// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
)

// Retries of one key back off from retryFirst to retryLast.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 15 * time.Second
)

// newQueue returns a work queue that backs off per key. A key that is queued
// several times is worked once, and never by two workers at a time.
func newQueue[K comparable]() workqueue.TypedRateLimitingInterface[K] {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](minBackoff, maxBackoff))
}

// runWorkers processes keys until ctx ends. A key whose do failed comes back later.
func runWorkers[K comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[K], workers int, do func(context.Context, K) error) {
	defer context.AfterFunc(ctx, queue.ShutDown)()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for processNext(ctx, queue, do) {
			}
		})
	}
	wg.Wait()
}

// processNext works one key; it reports false when the queue is shut down.
func processNext[K comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[K], do func(context.Context, K) error) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	err := do(ctx, key)
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

// RetryUntilSuccess calls do until it succeeds or ctx ends, with the queue's backoff.
func RetryUntilSuccess(ctx context.Context, do func(context.Context) error) error {
	for wait := minBackoff; ; wait = min(2*wait, maxBackoff) {
		err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		logr.FromContextOrDiscard(ctx).Info("Will retry", "after", wait.String(), "error", err.Error())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}
