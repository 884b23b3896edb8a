// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestWorkRetriesAndNeverSharesAKey(t *testing.T) {
	t.Parallel()
	queue := newQueue[int]()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const keys = 20
	var busy [keys]atomic.Int32
	var tries [keys]atomic.Int32
	var left sync.WaitGroup
	left.Add(keys)
	for k := range keys {
		queue.Add(k)
		queue.Add(k)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runWorkers(ctx, queue, 8, func(_ context.Context, k int) error {
			if busy[k].Add(1) > 1 {
				t.Errorf("two workers have key %d", k)
			}
			defer busy[k].Add(-1)
			if tries[k].Add(1) < 3 {
				queue.Add(k) // as a new event would
				return errors.New("again")
			}
			if tries[k].Load() == 3 {
				left.Done()
			}
			return nil
		})
	}()
	left.Wait()
	cancel()
	<-done
}

func TestPersistEnds(t *testing.T) {
	t.Parallel()
	tries := 0
	err := RetryUntilSuccess(t.Context(), func(context.Context) error {
		if tries++; tries < 3 {
			return errors.New("again")
		}
		return nil
	})
	if err != nil || tries != 3 {
		t.Errorf("got %v after %d tries, want success at the third", err, tries)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := RetryUntilSuccess(ctx, func(context.Context) error { return errors.New("never") }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's end", err)
	}
}
