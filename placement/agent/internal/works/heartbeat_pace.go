// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"sync/atomic"
	"time"
)

// Times of the heartbeat while objects move.
const (
	// movingInterval is the interval for some time after the hub has changed a Work, and after the agent's start. A
	// move waits before each step until the clusters have dated their reports again.
	movingInterval = 2 * time.Second
	// movingTime is how long that is.
	movingTime = 2 * time.Minute
)

// heartbeatPace decides when the next heartbeat is due.
type heartbeatPace struct {
	changed   chan struct{} // has a value when lastOrder has changed
	lastOrder atomic.Pointer[time.Time]
}

// newHeartbeatPace returns the pace of an agent that starts: objects may be on their way.
func newHeartbeatPace() *heartbeatPace {
	p := &heartbeatPace{changed: make(chan struct{}, 1)}
	p.noteOrder()
	return p
}

// noteOrder notes that the hub has changed a Work.
func (p *heartbeatPace) noteOrder() {
	now := time.Now()
	p.lastOrder.Store(&now)
	select {
	case p.changed <- struct{}{}:
	default: // it is noted already
	}
}

// interval returns the time between two heartbeats.
func (p *heartbeatPace) interval() time.Duration {
	if last := p.lastOrder.Load(); last != nil && time.Since(*last) < movingTime {
		return movingInterval
	}
	return heartbeatInterval
}

// wait waits until a heartbeat is due after the last one. It returns false when the context has ended.
func (p *heartbeatPace) wait(ctx context.Context, last time.Time) bool {
	for {
		due := time.NewTimer(time.Until(last.Add(p.interval())))
		select {
		case <-ctx.Done():
			due.Stop()
			return false
		case <-due.C:
			return true
		case <-p.changed:
			due.Stop()
		}
	}
}
