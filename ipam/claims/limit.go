// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"sync"
	"time"
)

// A node that was taken over may report rollbacks without end, and each stops all claims
// of the network until every node has reported. So many recoveries of one network may
// begin with reports of one node within that time. An etcd that is restored more often is
// noticed by other nodes, and by the controller itself.
const (
	mostRecoveries   = 3
	recoveriesWithin = 10 * time.Minute
)

// limiter remembers which recoveries began with a node's report of a rollback. What it
// does not remember, since another controller led, is in the network's status.
type limiter struct {
	mu    sync.Mutex
	begun map[Key]map[string][]time.Time
}

// allow reports whether a node's report of a rollback begins a recovery, and until when
// those that follow do not; the zero time if they do.
func (l *limiter) allow(key Key, node string, now time.Time) (begins bool, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var recent []time.Time
	for _, at := range l.begun[key][node] {
		if now.Sub(at) < recoveriesWithin {
			recent = append(recent, at)
		}
	}
	if begins = len(recent) < mostRecoveries; begins {
		recent = append(recent, now)
	}
	if over := len(recent) - mostRecoveries; over >= 0 {
		until = recent[over].Add(recoveriesWithin)
	}
	return begins, until
}

// began counts a recovery for the nodes that reported the rollback.
func (l *limiter) began(key Key, nodes []string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun == nil {
		l.begun = map[Key]map[string][]time.Time{}
	}
	if l.begun[key] == nil {
		l.begun[key] = map[string][]time.Time{}
	}
	for _, node := range nodes {
		kept := l.begun[key][node]
		l.begun[key][node] = append(kept[max(0, len(kept)-mostRecoveries):], now)
	}
}

// forget is for a network that is gone.
func (l *limiter) forget(key Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.begun, key)
}
