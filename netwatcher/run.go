// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"time"
)

const (
	// settle gathers what comes in one go, such as a list of networks.
	settle = 50 * time.Millisecond
	// resync is the round that nothing asked for.
	resync = time.Minute
	// firstRetry doubles up to resync.
	firstRetry = time.Second
)

// Run makes rounds until ctx ends: at once, when something changes, after
// failures with growing pauses, and now and then.
func (r *Reconciler) Run(ctx context.Context) error {
	go r.watch(ctx)
	retry := firstRetry
	for {
		pause := resync
		if err := r.Reconcile(ctx); err != nil && ctx.Err() == nil {
			r.Log.Error(err, "host links are not as they should be", "retry", retry)
			pause, retry = retry, min(2*retry, resync)
		} else {
			retry = firstRetry
		}
		if !r.wait(ctx, pause) {
			return nil
		}
	}
}

// watch listens to the kernel, again and again.
func (r *Reconciler) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.Kernel.Watch(ctx, r.changed); err != nil && ctx.Err() == nil {
			r.Log.Error(err, "link events are lost until they are watched again")
		}
		r.changed("") // whatever happened meanwhile
		sleep(ctx, firstRetry)
	}
}

// wait returns false when ctx ended.
func (r *Reconciler) wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-r.wake:
	}
	sleep(ctx, settle)
	select { // what came while it settled is seen by the coming round
	case <-r.wake:
	default:
	}
	return ctx.Err() == nil
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
