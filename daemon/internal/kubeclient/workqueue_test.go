// SPDX-License-Identifier: Apache-2.0

package kubeclient

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A key that fails is processed again, and never by two workers at a time.
func TestRunWorkersRetriesAndNeverSharesAKey(t *testing.T) {
	t.Parallel()
	queue := NewQueue[int]()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const keys = 20
	var running [keys]atomic.Int32
	var attempts [keys]atomic.Int32
	var unfinished sync.WaitGroup
	unfinished.Add(keys)
	for k := range keys {
		queue.Add(k)
		queue.Add(k)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		RunWorkers(ctx, queue, 8, func(_ context.Context, k int) error {
			if running[k].Add(1) > 1 {
				t.Errorf("two workers process key %d", k)
			}
			defer running[k].Add(-1)
			if attempts[k].Add(1) < 3 {
				queue.Add(k) // as a new event would
				return errors.New("again")
			}
			if attempts[k].Load() == 3 {
				unfinished.Done()
			}
			return nil
		})
	}()
	unfinished.Wait()
	cancel()
	<-done
}

// A success ends the retries, and so does the end of the context.
func TestRetryUntilSuccessEnds(t *testing.T) {
	t.Parallel()
	attempts := 0
	err := RetryUntilSuccess(t.Context(), func(context.Context) error {
		if attempts++; attempts < 3 {
			return errors.New("again")
		}
		return nil
	})
	if err != nil || attempts != 3 {
		t.Errorf("got %v after %d attempts, want success at the third", err, attempts)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := RetryUntilSuccess(ctx, func(context.Context) error { return errors.New("never") }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline of the context", err)
	}
}
